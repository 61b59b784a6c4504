"""Mixing: images and labels are blended in the same shares, in pairs that no slicing parts."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tasks.augmentation import Cutmix, Mixup
from tasks.feed.mix import Mixed, beta, mix, partners

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (41, 6, 9, 3), np.uint8)
NUMBERS = RNG.random((41, 4), np.float32)
PARTNER = np.minimum(np.arange(41) ^ 1, 40)


def all_partners(num_rows):
    return partners(tf.constant(num_rows), tf.constant(num_rows))


def mixed(change, images=IMAGES, share=None):
    share = np.ones(len(images), np.float32) if share is None else share
    found = mix(
        Mixed(tf.constant(images), tf.constant(share)),
        all_partners(len(images)),
        tf.constant(NUMBERS[: len(images)]),
        change,
    )
    assert (found.images.shape, found.images.dtype) == (images.shape, images.dtype)
    return found.images.numpy(), found.share.numpy()


@pytest.mark.parametrize(
    ("num_rows", "num_valid", "expected"),
    [
        (1, 1, [0]),
        (4, 4, [1, 0, 3, 2]),
        (5, 5, [1, 0, 3, 2, 4]),
        (6, 5, [1, 0, 3, 2, 4, 4]),
        (4, 1, [0, 0, 0, 0]),
        (2, 0, [0, 0]),
    ],
)
def test_neighbours_are_partners_and_an_odd_last_row_is_its_own_whatever_pads_it(num_rows, num_valid, expected):
    assert partners(tf.constant(num_rows), tf.constant(num_valid)).numpy().tolist() == expected


def test_mixup_is_the_weighted_sum():
    images, share = mixed(Mixup(alpha=1))
    weight = share[:, None, None, None].astype(np.float64)
    expected = weight * IMAGES + (1 - weight) * IMAGES[PARTNER]
    assert np.abs(images - expected).max() <= 0.5 + 1e-4  # rounded
    assert np.allclose(share[:40], NUMBERS[:40, 1], atol=1e-6)  # Beta(1, 1) is uniform

    pixels = IMAGES / 255
    images, share = mixed(Mixup(alpha=1), pixels)
    weight = share[:, None, None, None].astype(np.float64)
    assert np.array_equal(images, weight * pixels + (1 - weight) * pixels[PARTNER])


def test_cutmix_puts_in_a_box_and_its_weight_is_the_area_outside():
    images, share = mixed(Cutmix())
    for row, partner in enumerate(PARTNER[:40]):
        top, left = int(NUMBERS[row, 2] * 6), int(NUMBERS[row, 3] * 9)
        side = np.sqrt(1 - NUMBERS[row, 1])
        tall, wide = round(side * 6), round(side * 9)
        rows = slice(max(top - tall // 2, 0), max(top - tall // 2 + tall, 0))
        columns = slice(max(left - wide // 2, 0), max(left - wide // 2 + wide, 0))
        expected = IMAGES[row].copy()
        expected[rows, columns] = IMAGES[partner][rows, columns]
        assert np.array_equal(images[row], expected)
        assert share[row] == pytest.approx(1 - IMAGES[row][rows, columns].size / IMAGES[row].size, abs=1e-6)


@pytest.mark.parametrize("change", [Mixup(alpha=0.3), Cutmix()])
def test_an_odd_last_row_and_those_that_are_not_drawn_stay_as_they_are(change):
    images, share = mixed(change)
    assert np.array_equal(images[40], IMAGES[40])
    assert share[40] == 1
    images, share = mixed(change.model_copy(update={"probability": 0.25}))
    stays = NUMBERS[:, 0] >= 0.25
    assert np.array_equal(images[stays], IMAGES[stays])
    assert (share[stays] == 1).all()


def test_mixing_twice_weighs_what_is_left_of_the_own_label():
    # Pictures of one row's number: what share of it is left can be read off.
    own = np.zeros((4, 40, 40, 1))
    own[::2] = 1
    once = mixed(Mixup(alpha=1), own)
    images, share = mix(Mixed(*map(tf.constant, once)), all_partners(4), tf.constant(NUMBERS[:4]), Mixup(alpha=1))
    assert np.allclose(images[::2, 0, 0, 0], share[::2], atol=1e-6)
    assert np.allclose(1 - images[1::2, 0, 0, 0], share[1::2], atol=1e-6)
    images, share = mix(Mixed(*map(tf.constant, once)), all_partners(4), tf.constant(NUMBERS[:4]), Cutmix())
    assert np.allclose(np.mean(images[::2], axis=(1, 2, 3)), share[::2], atol=1e-6)
    assert np.allclose(1 - np.mean(images[1::2], axis=(1, 2, 3)), share[1::2], atol=1e-6)


def test_a_part_that_begins_at_an_even_row_is_mixed_as_in_the_whole():
    whole = mixed(Mixup())
    part = mix(Mixed(tf.constant(IMAGES[20:]), tf.ones(21)), all_partners(21), tf.constant(NUMBERS[20:]), Mixup())
    assert np.array_equal(part.images, whole[0][20:])
    assert np.array_equal(part.share, whole[1][20:])


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 4.0])
def test_shares_are_distributed_as_beta(alpha):
    numbers = (np.arange(20_000, dtype=np.float32) + 0.5) / 20_000
    found = beta(alpha, tf.constant(numbers)).numpy()
    lower = found < 0.5  # near 1 float32 is too coarse to tell
    assert np.abs(stats.beta(alpha, alpha).cdf(found) - numbers)[lower].max() < 1e-3
    assert found.mean() == pytest.approx(0.5, abs=1e-3)
    assert found.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=2e-3)
