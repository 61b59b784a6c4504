"""Draws: random numbers of a training step that are a function of (seed, layer, step, row of the global batch)."""

import math
import re

import tensorflow as tf

from tasks.models.rows import ReplicaRows

PHILOX = 1  # tf.random.Algorithm.PHILOX, as the raw ops want it
_RANDOM = "Random(?!Shuffle(Queue|Dataset))|Multinomial|TruncatedNormal"  # in the type of an operation
WORDS_PER_COUNT = 4  # uint32 words that one count of Philox4x32 yields (Salmon et al., SC 2011)


def random_words(rows: ReplicaRows, stream: int, shape: tf.Tensor | tuple[int, ...]) -> tf.Tensor:
    """Returns `shape` [b, ...] uint32, uniform: this replica's rows of what one replica would draw for all of them.

    Where the first axis is not that of the examples, every replica draws the same.
    """
    call = rows.calls.get(stream, 0)
    rows.calls[stream] = call + 1
    assert stream < 2**16, "packed with a call < 2**8 and train.seed < 2**31 into one int64"
    assert call < 2**8, "packed, as above"
    shape = tf.convert_to_tensor(shape)
    length = tf.get_static_value(shape[0])
    per_example = 1 if length is None else rows.per_example(int(length))
    seed = tf.stack([tf.constant((rows.seed << 24) | (stream << 8) | call, tf.int64), rows.step])
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    # Rows are padded to whole counts, so that each begins at a count of its own.
    counts_per_row = tf.cast(tf.math.ceil(tf.reduce_prod(shape[1:]) / WORDS_PER_COUNT), tf.int64)
    offset = tf.cast(rows.first_row * per_example * counts_per_row, tf.uint64)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([tf.cast(shape[0], tf.int64), counts_per_row * WORDS_PER_COUNT]),
        key=key,
        counter=counter + tf.stack([offset, tf.zeros_like(offset)]),
        alg=PHILOX,
        dtype=tf.uint32,
    )
    return tf.reshape(words[:, : tf.reduce_prod(shape[1:])], shape)


def foreign_draws(graph: tf.Graph) -> list[str]:
    """Returns the names of the operations of `graph` that draw random numbers otherwise than `random_words`."""
    ours = ("StatelessRandomGetKeyCounter", "StatelessRandomUniformFullIntV2")
    operations = graph.get_operations()
    return [each.name for each in operations if re.search(_RANDOM, each.type) and each.type not in ours]


def kept(rows: ReplicaRows, stream: int, shape: tf.Tensor | tuple[int, ...], *, rate: float) -> tf.Tensor:
    """Returns `shape` [b, ...] bool, True but for a share of `rate`, which is at least 0 and below 1."""
    return random_words(rows, stream, shape) >= tf.constant(round(rate * 2**32), tf.uint32)


def normal(rows: ReplicaRows, stream: int, shape: tf.Tensor | tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
    """Returns `shape` [b, ...] of mean 0 and standard deviation 1, drawn in float32 at least (Box and Muller 1958)."""
    wide = tf.float64 if dtype == tf.float64 else tf.float32
    words = random_words(rows, stream, tf.concat([shape, [2]], axis=0))
    uniform = (tf.cast(words, wide) + 0.5) / 2**32
    drawn = tf.sqrt(-2 * tf.math.log(uniform[..., 0])) * tf.cos(2 * math.pi * uniform[..., 1])
    return tf.cast(drawn, dtype)
