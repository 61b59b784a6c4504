"""Balance: examples of a window drawn so that every class is shown equally often."""

from collections.abc import Sequence

import tensorflow as tf

ONE = 2**20  # the weight of the rarest class
MAX_DRAWN = 2**21  # examples at once, for the sums of weights to be whole numbers of 64 bits


def class_weights(class_counts: Sequence[int]) -> list[int]:
    """Returns how much an example of each class weighs, 1 to ONE: inversely to the class's count in the split.

    Whole numbers, because their sums are the same in any order. A class of no examples weighs nothing.
    """
    rarest = min(count for count in class_counts if count)
    return [max(1, round(ONE * rarest / count)) if count else 0 for count in class_counts]


def draw_balanced(labels: tf.Tensor, weights: Sequence[int], seed: tf.Tensor) -> tf.Tensor:
    """Returns [n] int32: as many places as there are `labels`, [n] int64, each drawn as often as its class weighs.

    Systematic resampling (Kitagawa, 1996): n pointers at equal distances over the summed weights, begun at random, so
    that an example is drawn as often as its share of n says, rounded up or down; n up to MAX_DRAWN. `seed`: [2] int64.
    """
    ends = tf.cumsum(tf.gather(tf.constant(weights, tf.int64), labels))
    num_rows, total = tf.size(labels, tf.int64), ends[-1]
    start = tf.random.stateless_uniform([], seed, 0, total, tf.int64, alg="philox")
    pointers = (tf.range(num_rows) * total + start) // num_rows
    return tf.searchsorted(ends, pointers, side="right")
