"""Mixing: blends of two neighbours in a batch, and what share of each one's label that leaves."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.special import betaincinv

from tasks.augmentation import Cutmix, Mixup
from tasks.feed.transforms import box, like, per_image

NUM_NUMBERS = 4  # mixed or not, share, and for a box the row and column of its centre
NUM_QUANTILES = 4096


class Mixed(NamedTuple):
    """Images of a batch, each of them the row's own and its partner's."""

    images: tf.Tensor
    """[b, h, w, c], uint8 or of a floating type."""
    share: tf.Tensor
    """[b] float32, in 0..1: how much of the image is the row's own."""


def partners(num_rows: tf.Tensor, num_valid: tf.Tensor) -> tf.Tensor:
    """Returns [num_rows] int32: rows 2i and 2i + 1 are each other's partner, an odd last one of `num_valid` is its own.

    So a part of a batch that begins at an even row, and has an even number of them, is mixed as in the whole.
    """
    return tf.minimum(tf.bitwise.bitwise_xor(tf.range(num_rows), 1), tf.maximum(num_valid, 1) - 1)


def mix(mixed: Mixed, partner: tf.Tensor, numbers: tf.Tensor, change: Mixup | Cutmix) -> Mixed:
    """Returns the images mixed with those of `partner`, [b] int32. Numbers: [b, NUM_NUMBERS] float32 in [0, 1)."""
    images = mixed.images
    stays = (numbers[:, 0] >= change.probability) | (partner == tf.range(tf.size(partner)))
    share = tf.where(stays, 1.0, beta(change.alpha, numbers[:, 1]))
    others = tf.gather(images, partner)
    if isinstance(change, Cutmix):
        inside, share = _choose_boxes(images, numbers[:, 2:4], share)
        images = tf.where(inside, others, images)
    else:
        images = _weigh(images, others, share)
    # The partner may have been mixed before, with this very row.
    return Mixed(images, share * mixed.share + (1 - share) * (1 - tf.gather(mixed.share, partner)))


def beta(alpha: float, numbers: tf.Tensor) -> tf.Tensor:
    """Returns [b] float32 in 0..1, distributed as Beta(alpha, alpha), of numbers uniform in [0, 1)."""
    quantiles = tf.constant(betaincinv(alpha, alpha, np.linspace(0, 1, NUM_QUANTILES + 1)), tf.float32)
    place = numbers * NUM_QUANTILES
    low = tf.cast(place, tf.int32)
    before, after = tf.gather(quantiles, low), tf.gather(quantiles, low + 1)
    return before + (place - tf.floor(place)) * (after - before)


def _weigh(images: tf.Tensor, others: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    dtype = tf.float32 if images.dtype == tf.uint8 else images.dtype
    own = tf.cast(per_image(share), dtype)
    return like(images, own * tf.cast(images, dtype) + (1 - own) * tf.cast(others, dtype))


def _choose_boxes(images: tf.Tensor, numbers: tf.Tensor, share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns [b, h, w, 1] bool, true in a box that covers about 1 - share, and [b] float32, what it does not cover."""
    height, width = images.shape[1:3]
    side = tf.sqrt(1 - share)
    inside = box(images, numbers, *(tf.cast(tf.round(side * size), tf.int32) for size in (height, width)))
    covered = tf.reduce_sum(tf.cast(inside, tf.int32), axis=[1, 2, 3])
    return inside, 1 - tf.cast(covered, tf.float32) / (height * width)
