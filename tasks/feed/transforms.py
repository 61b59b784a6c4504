"""Transforms: random changes of a batch of images, each a function of pixels, random numbers and settings.

images: [b, h, w, c], uint8 in 0..255 or of a floating type; numbers: [b, k] float32 in [0, 1), of which each transform
takes as many as NUM_NUMBERS says. What comes out has the shape and dtype of what goes in.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tasks.augmentation import Color, Cutout, Flip, PadCrop, RandomResizedCrop

GREY = np.array([0.299, 0.587, 0.114], np.float32)  # share of each colour in the brightness; ITU-R BT.601
CROP_TRIALS = 10  # windows that are drawn for an image; the first that lies inside is taken


def flip(images: tf.Tensor, numbers: tf.Tensor, change: Flip) -> tf.Tensor:
    """Returns the images, some mirrored. Numbers: horizontally or not, vertically or not."""
    for axis, wanted, number in ((2, change.horizontal, numbers[:, 0]), (1, change.vertical, numbers[:, 1])):
        if wanted:
            images = tf.where(per_image(number < change.probability), tf.reverse(images, [axis]), images)
    return images


def pad_crop(images: tf.Tensor, numbers: tf.Tensor, change: PadCrop) -> tf.Tensor:
    """Returns a window of each image with a border. Numbers: top, left."""
    pixels, (height, width) = change.pixels, images.shape[1:3]
    mode = {"reflect": "REFLECT", "zero": "CONSTANT"}[change.border]
    padded = tf.pad(images, [[0, 0], [pixels, pixels], [pixels, pixels], [0, 0]], mode)
    top, left = (below(2 * pixels + 1, numbers[:, place, tf.newaxis]) for place in (0, 1))
    rows = tf.gather(padded, top + tf.range(height), axis=1, batch_dims=1)
    return tf.gather(rows, left + tf.range(width), axis=2, batch_dims=1)


def random_resized_crop(images: tf.Tensor, numbers: tf.Tensor, change: RandomResizedCrop) -> tf.Tensor:
    """Returns a window of each image, enlarged to the image's size (bilinear). Numbers: as `choose_windows` takes."""
    windows = choose_windows(numbers, tf.constant(list(images.shape[1:3])), change)
    pixels = tf.cast(images, tf.float32 if images.dtype == tf.uint8 else images.dtype)
    for axis in (1, 2):
        pixels = _enlarge(pixels, windows[:, axis - 1], windows[:, axis + 1], axis)
    return like(images, pixels)


def choose_windows(numbers: tf.Tensor, size: tf.Tensor, change: RandomResizedCrop) -> tf.Tensor:
    """Returns [..., 4] int32, top, left, height and width of a window in an image of `size` ([2] int32).

    As Szegedy et al. 2015: area and proportions are drawn until the window lies inside; after ten trials it is the
    largest whose proportions are allowed. Numbers: ten for the area, ten for the proportions, top, left.
    """
    bounds = tf.cast(size, tf.float32)
    areas = tf.reduce_prod(bounds) * between(change.area, numbers[..., :CROP_TRIALS])
    ratios = log_between(change.ratio, numbers[..., CROP_TRIALS:-2])
    drawn = tf.round(tf.sqrt(tf.stack([areas / ratios, areas * ratios], axis=-1)))  # [..., trials, 2]
    largest = tf.minimum(bounds, tf.round(bounds[::-1] * [1 / change.ratio[0], change.ratio[1]]))
    sides = tf.concat([drawn, tf.zeros_like(drawn[..., :1, :]) + largest], axis=-2)
    first = tf.argmax(tf.reduce_all(sides <= bounds, axis=-1), axis=-1)
    chosen = tf.cast(tf.maximum(tf.gather(sides, first, axis=-2, batch_dims=len(first.shape)), 1), tf.int32)
    return tf.concat([below(size - chosen + 1, numbers[..., -2:]), chosen], axis=-1)


def color(images: tf.Tensor, numbers: tf.Tensor, change: Color) -> tf.Tensor:
    """Returns uint8 images of other colours, of uint8. Numbers: brightness, contrast, saturation, hue."""
    pixels = tf.cast(images, tf.float32)

    def factor(strength: float, place: int) -> tf.Tensor:
        return per_image(between((1 - strength, 1 + strength), numbers[:, place]))

    if change.brightness:
        pixels = blend(tf.zeros_like(pixels), pixels, factor(change.brightness, 0))
    if change.contrast:
        pixels = blend(mean_grey(pixels), pixels, factor(change.contrast, 1))
    if change.saturation:
        pixels = blend(grey(pixels), pixels, factor(change.saturation, 2))
    if change.hue:
        turn = per_image(between((-change.hue, change.hue), numbers[:, 3]))[..., 0]
        hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(pixels / 255), axis=-1)
        pixels = tf.image.hsv_to_rgb(tf.stack([(hue + turn) % 1, saturation, value], axis=-1)) * 255
    return like(images, pixels)


def cutout(images: tf.Tensor, numbers: tf.Tensor, change: Cutout) -> tf.Tensor:
    """Returns the images with a square of zeros each. Numbers: row and column of its centre."""
    size = tf.fill(tf.shape(images)[:1], change.size)
    return tf.where(box(images, numbers, size, size), tf.zeros_like(images), images)


NUM_NUMBERS = {"flip": 2, "pad_crop": 2, "random_resized_crop": 2 * CROP_TRIALS + 2, "color": 4, "cutout": 2}
"""How many random numbers each transform takes for an image."""


def box(images: tf.Tensor, numbers: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns [b, h, w, 1] bool: whether a pixel lies in the box of `height` and `width`, [b] int32 each.

    Numbers: row and column of its centre, which is a pixel of the image; what lies outside falls away.
    """

    def covered(axis: int, length: tf.Tensor) -> tf.Tensor:
        size = images.shape[axis]
        first = (below(size, numbers[:, axis - 1]) - length // 2)[:, tf.newaxis]
        return (tf.range(size) >= first) & (tf.range(size) < first + length[:, tf.newaxis])

    return covered(1, height)[:, :, tf.newaxis, tf.newaxis] & covered(2, width)[:, tf.newaxis, :, tf.newaxis]


def blend(base: tf.Tensor, pixels: tf.Tensor, factor: tf.Tensor | float) -> tf.Tensor:
    """Returns float32 pixels in 0..255, `factor` times as far from the base: 0 gives the base, 1 changes nothing."""
    return tf.clip_by_value(base + factor * (pixels - base), 0, 255)


def grey(pixels: tf.Tensor) -> tf.Tensor:
    """Returns [..., h, w, 1] float32: the brightness of [..., h, w, c], where c is 1 or 3."""
    return tf.reduce_sum(pixels * GREY, axis=-1, keepdims=True) if pixels.shape[-1] == 3 else pixels


def mean_grey(pixels: tf.Tensor) -> tf.Tensor:
    """Returns [..., 1, 1, 1] float32: the mean of whole greys, which in whatever order they are summed is the same."""
    whole = tf.cast(tf.round(grey(pixels)), tf.int32)
    num_pixels = pixels.shape[-3] * pixels.shape[-2]
    return tf.cast(tf.reduce_sum(whole, axis=[-3, -2, -1], keepdims=True), tf.float32) / num_pixels


def between(bounds: Sequence[float] | np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    """Returns float32 between the bounds, of numbers in [0, 1)."""
    return bounds[0] + numbers * float(bounds[1] - bounds[0])


def log_between(bounds: Sequence[float], numbers: tf.Tensor) -> tf.Tensor:
    """Returns float32 between the bounds, whose logarithm is uniform, of numbers in [0, 1)."""
    # The last bit of TensorFlow's exp depends on the place in the tensor, and so on how many rows a worker has.
    logarithms = tf.cast(between(np.log(bounds), numbers), tf.float64)
    return tf.cast(tf.exp(logarithms), tf.float32)


def below(count: tf.Tensor | int, numbers: tf.Tensor) -> tf.Tensor:
    """Returns int32 in 0..count - 1, of numbers in [0, 1)."""
    # The product may be rounded up to the count.
    return tf.minimum(tf.cast(numbers * tf.cast(count, tf.float32), tf.int32), count - 1)


def per_image(values: tf.Tensor) -> tf.Tensor:
    """Returns [b] as [b, 1, 1, 1]."""
    return values[:, tf.newaxis, tf.newaxis, tf.newaxis]


def like(images: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """Returns the pixels in the dtype of the images; to uint8 they are rounded."""
    return tf.saturate_cast(tf.round(pixels), tf.uint8) if images.dtype == tf.uint8 else tf.cast(pixels, images.dtype)


def _enlarge(pixels: tf.Tensor, first: tf.Tensor, length: tf.Tensor, axis: int) -> tf.Tensor:
    """Returns pixels of the same shape in which `length` of them from `first` on, [b] int32 each, fill the axis."""
    size = pixels.shape[axis]
    last = tf.cast(length, tf.float32)[:, tf.newaxis]
    # Where the middle of each new pixel lies among those of the window, [b, size].
    places = tf.clip_by_value((tf.range(size, dtype=tf.float32) + 0.5) * last / size - 0.5, 0, last - 1)
    before, after = (
        tf.gather(pixels, first[:, tf.newaxis] + tf.cast(neighbour, tf.int32), axis=axis, batch_dims=1)
        for neighbour in (tf.floor(places), tf.math.ceil(places))
    )
    share = tf.expand_dims(tf.cast(places - tf.floor(places), pixels.dtype), axis=3 - axis)[..., tf.newaxis]
    return before + share * (after - before)
