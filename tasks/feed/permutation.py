"""Permutation: the order of some examples as a pure function of a seed, an epoch and a place in it."""

import tensorflow as tf


def permutation(size: int | tf.Tensor, seed: int, epoch: int | tf.Tensor, place: int | tf.Tensor) -> tf.Tensor:
    """Returns [size] int32; the algorithm is fixed, so that no device changes it."""
    return tf.random.experimental.stateless_shuffle(tf.range(size), seed=seed_of(seed, epoch, place), alg="philox")


def seed_of(seed: int, epoch: int | tf.Tensor, place: int | tf.Tensor) -> tf.Tensor:
    """Returns [2] int64, another one for each seed (below 2**31), epoch and place."""
    return tf.stack([tf.cast(epoch, tf.int64) * 2**31 + seed, tf.cast(place, tf.int64)])
