"""Places: of words in a vocabulary, looked up in the graph."""

from collections.abc import Sequence

import tensorflow as tf


def find_places(values: tf.Tensor, vocabulary: Sequence[str]) -> tf.Tensor:
    """Returns [b] int32: 1 + the index in the vocabulary of each of `values`, [b] string, and 0 if it is not in there.

    It is no lookup table, because a table has a state, and the feed could prefetch nothing (`Feed._batches`).
    """
    if not vocabulary:
        return tf.zeros_like(values, tf.int32)
    words = tf.constant(vocabulary)
    order = tf.argsort(_hash(words))
    hashes, words = tf.gather(_hash(words), order), tf.gather(words, order)
    nearest = tf.minimum(tf.searchsorted(hashes, _hash(values)), len(vocabulary) - 1)
    return tf.where(tf.gather(words, nearest) == values, 1 + tf.gather(order, nearest), 0)


def _hash(words: tf.Tensor) -> tf.Tensor:
    """Returns [n] int64, in which two of a vocabulary's words are alike once in 10^9 vocabularies of 100,000."""
    return tf.strings.to_hash_bucket_fast(words, 2**63 - 1)
