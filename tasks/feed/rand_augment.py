"""RandAugment: operations of a fixed list, drawn at random, all at one magnitude (Cubuk et al. 2020).

Every operation is a function of one image, [h, w, c] uint8 with c 1 or 3, of a level in 0..1 and of a sign, 1 or -1,
and returns an image of the same shape and dtype. Where Pillow has the operation, it is Pillow's.
"""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tasks.augmentation import RandAugment
from tasks.feed.signature import PARALLEL_IMAGES
from tasks.feed.transforms import below, blend, grey, like, mean_grey

Operation = Callable[[tf.Tensor, float, tf.Tensor], tf.Tensor]

MAX_FACTOR = 0.9  # a blend goes from 1 - this to 1 + this
MAX_SHEAR = 0.3
MAX_SHIFT = 0.45  # of the side
MAX_DEGREES = 30.0
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH


def rand_augment(images: tf.Tensor, numbers: tf.Tensor, change: RandAugment) -> tf.Tensor:
    """Returns images [b, h, w, c] uint8, changed. Numbers: [b, 2 * num_ops], for each the operation and its sign."""
    level = change.magnitude / 10

    def one(image: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
        for place in range(change.num_ops):
            which = below(len(OPERATIONS), drawn[2 * place])
            sign = tf.where(drawn[2 * place + 1] < 0.5, 1.0, -1.0)
            branches = [lambda run=run, image=image, sign=sign: run(image, level, sign) for run in OPERATIONS.values()]
            image = tf.ensure_shape(tf.switch_case(which, branches), images.shape[1:])
        return image

    return tf.map_fn(
        lambda pair: one(*pair),
        (images, numbers),
        fn_output_signature=tf.TensorSpec(images.shape[1:], tf.uint8),
        parallel_iterations=PARALLEL_IMAGES,
    )


def _identity(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return image


def _autocontrast(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    pixels = tf.cast(image, tf.float32)
    darkest, lightest = (find(pixels, axis=[0, 1], keepdims=True) for find in (tf.reduce_min, tf.reduce_max))
    stretched = like(image, (pixels - darkest) * 255 / tf.maximum(lightest - darkest, 1))
    return tf.where(lightest > darkest, stretched, image)


def _equalize(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    def channel(values: tf.Tensor) -> tf.Tensor:
        counts = tf.math.bincount(values, minlength=256, maxlength=256)
        step = (tf.size(values) - counts[tf.reduce_max(values)]) // 255
        table = (step // 2 + tf.cumsum(counts, exclusive=True)) // tf.maximum(step, 1)
        return tf.where(step > 0, tf.gather(tf.minimum(table, 255), values), values)

    channels = tf.unstack(tf.cast(image, tf.int32), axis=-1)
    return tf.cast(tf.stack([channel(values) for values in channels], axis=-1), tf.uint8)


def _solarize(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.cast(image, tf.int32) < round(256 * (1 - level)), image, 255 - image)


def _posterize(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(image, tf.constant(256 - 2 ** round(4 * level), tf.uint8))


def _saturation(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    pixels = tf.cast(image, tf.float32)
    return like(image, blend(grey(pixels), pixels, 1 + MAX_FACTOR * level * sign))


def _contrast(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    pixels = tf.cast(image, tf.float32)
    return like(image, blend(mean_grey(pixels), pixels, 1 + MAX_FACTOR * level * sign))


def _brightness(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    pixels = tf.cast(image, tf.float32)
    return like(image, blend(tf.zeros_like(pixels), pixels, 1 + MAX_FACTOR * level * sign))


def _sharpness(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    height, width, channels = image.shape
    pixels = tf.cast(image, tf.float32)
    kernel = np.repeat(_SMOOTH[:, :, None, None], channels, axis=2)
    inside = tf.nn.depthwise_conv2d(pixels[tf.newaxis], kernel, [1, 1, 1, 1], "SAME")[0]
    edge = np.ones((height, width, 1), bool)
    edge[1:-1, 1:-1] = False  # as in Pillow, the outermost pixels stay
    return like(image, blend(tf.where(edge, pixels, inside), pixels, 1 + MAX_FACTOR * level * sign))


def _rotate(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    angle = math.radians(MAX_DEGREES) * level * sign
    return _map(image, [[tf.cos(angle), -tf.sin(angle)], [tf.sin(angle), tf.cos(angle)]])


def _shear_x(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return _map(image, [[1.0, MAX_SHEAR * level * sign], [0.0, 1.0]])


def _shear_y(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return _map(image, [[1.0, 0.0], [MAX_SHEAR * level * sign, 1.0]])


def _translate_x(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return _map(image, [[1.0, 0.0], [0.0, 1.0]], right=tf.round(MAX_SHIFT * level * image.shape[1]) * sign)


def _translate_y(image: tf.Tensor, level: float, sign: tf.Tensor) -> tf.Tensor:
    return _map(image, [[1.0, 0.0], [0.0, 1.0]], down=tf.round(MAX_SHIFT * level * image.shape[0]) * sign)


def _map(
    image: tf.Tensor,
    matrix: list[list[tf.Tensor | float]],
    *,
    right: tf.Tensor | float = 0,
    down: tf.Tensor | float = 0,
) -> tf.Tensor:
    """Returns the image whose pixel (x, y), counted from the middle, shows that at matrix (x, y) - (right, down).

    The nearest pixel is taken; outside the image lies 0.
    """
    (xx, xy), (yx, yy) = matrix
    middle_y, middle_x = ((size - 1) / 2 for size in image.shape[:2])
    from_x = middle_x - xx * middle_x - xy * middle_y - right
    from_y = middle_y - yx * middle_x - yy * middle_y - down
    mapped = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=[tf.stack([tf.cast(value, tf.float32) for value in (xx, xy, from_x, yx, yy, from_y, 0, 0)])],
        output_shape=image.shape[:2],
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    return mapped[0]


OPERATIONS: dict[str, Operation] = {
    "identity": _identity,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "solarize": _solarize,
    "posterize": _posterize,
    "saturation": _saturation,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
    "rotate": _rotate,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
}
"""The fourteen of the paper, in a fixed order: a random number chooses among them."""
