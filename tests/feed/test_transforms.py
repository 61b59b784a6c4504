"""Each transform of images against an oracle in numpy or Pillow, or an exact property."""

import colorsys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from tasks.augmentation import Color, Cutout, Flip, PadCrop, RandAugment, RandomResizedCrop
from tasks.feed.rand_augment import OPERATIONS, rand_augment
from tasks.feed.transforms import (
    NUM_NUMBERS,
    choose_windows,
    color,
    cutout,
    flip,
    log_between,
    pad_crop,
    random_resized_crop,
)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 6, 9, 3), np.uint8)
NUMBERS = RNG.random((40, 22), np.float32)
TYPES = pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])


def changed(transform, change, dtype="uint8", images=IMAGES):
    """Returns the images before and after."""
    images = images if dtype == "uint8" else (images / 255).astype(dtype)
    numbers = tf.constant(NUMBERS[: len(images), : NUM_NUMBERS[change.kind]])
    found = transform(tf.constant(images), numbers, change)
    assert (found.shape, found.dtype) == (images.shape, images.dtype)
    return images, found.numpy()


@TYPES
def test_a_flip_is_its_reverse_or_nothing(dtype):
    images, found = changed(flip, Flip(vertical=True, probability=0.3), dtype)
    for image, result, drawn in zip(images, found, NUMBERS, strict=True):
        expected = image[:, ::-1] if drawn[0] < np.float32(0.3) else image
        assert np.array_equal(result, expected[::-1] if drawn[1] < np.float32(0.3) else expected)


@TYPES
@pytest.mark.parametrize(("border", "mode"), [("reflect", "reflect"), ("zero", "constant")])
def test_a_pad_crop_is_a_window_of_the_padded_image(dtype, border, mode):
    images, found = changed(pad_crop, PadCrop(pixels=3, border=border), dtype)
    corners = set()
    for image, result, drawn in zip(images, found, NUMBERS, strict=True):
        padded = np.pad(image, [(3, 3), (3, 3), (0, 0)], mode)
        top, left = int(drawn[0] * 7), int(drawn[1] * 7)
        corners.add((top, left))
        assert np.array_equal(result, padded[top : top + 6, left : left + 9])
    assert {top for top, _ in corners} == {left for _, left in corners} == set(range(7))


@TYPES
def test_a_cutout_zeroes_exactly_its_square(dtype):
    images, found = changed(cutout, Cutout(size=4), dtype)
    for image, result, drawn in zip(images, found, NUMBERS, strict=True):
        top, left = int(drawn[0] * 6) - 2, int(drawn[1] * 9) - 2
        expected = image.copy()
        expected[max(top, 0) : top + 4, max(left, 0) : left + 4] = 0
        assert np.array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_random_resized_crop_is_the_window_resized(dtype):
    change = RandomResizedCrop(area=(0.2, 1))
    images, found = changed(random_resized_crop, change, dtype)
    windows = choose_windows(tf.constant(NUMBERS), tf.constant([6, 9]), change).numpy()
    for image, result, (top, left, tall, wide) in zip(images, found, windows, strict=True):
        expected = tf.image.resize(image[top : top + tall, left : left + wide], [6, 9]).numpy()
        tolerance = 0.501 if dtype == "uint8" else 1e-6
        assert np.abs(result - expected).max() <= tolerance


def test_windows_have_the_area_and_the_proportions_that_were_asked_for():
    numbers = tf.constant(RNG.random((5000, 22), np.float32))
    top, left, tall, wide = choose_windows(numbers, tf.constant([400, 400]), RandomResizedCrop()).numpy().T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall <= 400).all()
    assert (left + wide <= 400).all()
    area = tall * wide / 400**2
    assert 0.078 < area.min() < 0.1
    assert area.max() > 0.95
    ratio = wide / tall
    assert 0.74 < ratio.min() < ratio.max() < 1.35
    assert abs(np.log(ratio).mean()) < 0.02


def test_where_no_window_fits_it_is_the_largest_that_is_allowed():
    windows = choose_windows(tf.zeros([22]) + 0.5, tf.constant([10, 100]), RandomResizedCrop(area=(0.9, 1)))
    assert windows.numpy().tolist() == [0, 44, 10, 13]


def test_windows_are_never_empty():
    numbers = tf.constant(RNG.random((100, 22), np.float32))
    windows = choose_windows(numbers, tf.constant([2, 1]), RandomResizedCrop(area=(0.01, 0.02))).numpy()
    assert windows[:, 2:].min() == 1


def test_brightness_is_a_factor():
    images, found = changed(color, Color(brightness=0.5))
    factors = 0.5 + NUMBERS[:, 0, None, None, None]
    assert np.abs(np.clip(images * factors, 0, 255) - found).max() <= 0.501


def test_contrast_and_saturation_are_those_of_pillow():
    for change, enhance, place in ((Color(contrast=0.8), "Contrast", 1), (Color(saturation=0.8), "Color", 2)):
        images, found = changed(color, change)
        for image, result, drawn in zip(images, found, NUMBERS, strict=True):
            expected = getattr(ImageEnhance, enhance)(Image.fromarray(image)).enhance(0.2 + 1.6 * float(drawn[place]))
            # Pillow rounds the grey, and cuts where this rounds.
            assert np.abs(np.asarray(expected, int) - result).max() <= 2


def test_hue_is_turned_and_nothing_else():
    images, found = changed(color, Color(hue=0.5))
    for image, result, drawn in zip(images[:8], found, NUMBERS, strict=False):
        for pixel, other in zip(image.reshape(-1, 3), result.reshape(-1, 3), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
            expected = colorsys.hsv_to_rgb((hue + float(drawn[3]) - 0.5) % 1, saturation, value)
            assert np.abs(np.array(expected) * 255 - other).max() <= 0.51


def test_no_strength_changes_no_colour():
    images, found = changed(color, Color())
    assert np.array_equal(images, found)


PHOTO = np.asarray(Image.fromarray(IMAGES[0]).resize((31, 24), Image.Resampling.BICUBIC))
PILLOW = {
    "identity": lambda image, level, sign: image,
    "autocontrast": lambda image, level, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, level, sign: ImageOps.equalize(image),
    "solarize": lambda image, level, sign: ImageOps.solarize(image, round(256 * (1 - level))),
    "posterize": lambda image, level, sign: ImageOps.posterize(image, 8 - round(4 * level)),
    "saturation": lambda image, level, sign: ImageEnhance.Color(image).enhance(1 + 0.9 * level * sign),
    "contrast": lambda image, level, sign: ImageEnhance.Contrast(image).enhance(1 + 0.9 * level * sign),
    "brightness": lambda image, level, sign: ImageEnhance.Brightness(image).enhance(1 + 0.9 * level * sign),
    "sharpness": lambda image, level, sign: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * level * sign),
    "translate_x": lambda image, level, sign: _affine(image, (1, 0, -sign * round(0.45 * level * 31), 0, 1, 0)),
    "translate_y": lambda image, level, sign: _affine(image, (1, 0, 0, 0, 1, -sign * round(0.45 * level * 24))),
}


def _affine(image, matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", PILLOW)
def test_an_operation_of_rand_augment_is_that_of_pillow(name, sign):
    for channels, level in ((3, 0.5), (3, 1.0), (1, 0.5)):
        pixels = PHOTO[..., :channels]
        image = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
        expected = np.asarray(PILLOW[name](image, level, sign), int).reshape(pixels.shape)
        found = OPERATIONS[name](tf.constant(pixels), level, tf.constant(sign)).numpy()
        exact = name in ("identity", "equalize", "solarize", "posterize", "translate_x", "translate_y")
        assert np.abs(found - expected).max() <= (0 if exact else 2)


@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y"])
def test_an_operation_that_turns_or_slants_keeps_the_middle_and_undoes_with_the_other_sign(name):
    square = np.zeros((31, 31, 1), np.uint8)
    square[10:21, 10:21] = RNG.integers(100, 256, (11, 11, 1))
    there = OPERATIONS[name](tf.constant(square), 0.8, tf.constant(1.0))
    assert there[15, 15, 0] == square[15, 15, 0]
    assert not np.array_equal(there, square)
    back = OPERATIONS[name](there, 0.8, tf.constant(-1.0)).numpy()
    same = (back == square).mean()
    assert same > 0.95 if name == "rotate" else same == 1  # of nearest pixels some are lost in turning
    assert np.array_equal(OPERATIONS[name](tf.constant(square), 0.0, tf.constant(1.0)), square)


def test_a_slant_moves_rows_in_proportion_to_their_distance_from_the_middle():
    column = np.zeros((15, 15, 1), np.uint8)
    column[:, 7] = 1
    found = OPERATIONS["shear_x"](tf.constant(column), 0.8, tf.constant(1.0)).numpy()[..., 0]
    assert (found.argmax(axis=1) - 7).tolist() == [2, 1, 1, 1, 1, 0, 0, 0, 0, 0, -1, -1, -1, -1, -2]


def test_rand_augment_draws_every_operation_and_runs_them_in_a_row():
    count = len(OPERATIONS)
    images = np.repeat(PHOTO[None], count, axis=0)
    # The first operation is each of the list in turn, the second always the inverse of none: identity.
    numbers = np.stack(
        [(np.arange(count) + 0.5) / count, np.full(count, 0.9), np.zeros(count), np.zeros(count)], axis=1
    )
    change = RandAugment(num_ops=2, magnitude=6)
    found = rand_augment(tf.constant(images), tf.constant(numbers, tf.float32), change).numpy()
    for image, operation in zip(found, OPERATIONS.values(), strict=True):
        assert np.array_equal(image, operation(tf.constant(PHOTO), 0.6, tf.constant(-1.0)))


def test_a_ratio_is_the_same_wherever_in_a_batch_it_is_drawn():
    numbers = np.random.default_rng(0).random(1000, np.float32)
    alone = [log_between((3 / 4, 4 / 3), tf.constant([number])).numpy()[0] for number in numbers]
    assert log_between((3 / 4, 4 / 3), tf.constant(numbers)).numpy().tolist() == alone
