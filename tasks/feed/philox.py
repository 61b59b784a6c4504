"""Philox: random numbers that are a function of a key and a counter, for many examples at once."""

import tensorflow as tf

# Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": Philox4x32-10, the generator of tf.random.
_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_WORD = 2**32 - 1


def uniform(seed: int, epoch: tf.Tensor, ids: tf.Tensor, *, num_streams: int, count: int) -> tf.Tensor:
    """Returns [b, num_streams, count] float32 in [0, 1), a function of seed, epoch, id, stream and place in the stream.

    `epoch` is [] and `ids` [b] int64. tf.random takes one seed a call, and a call for each example costs more than
    changing a small image does; here the key is (seed, epoch) and the counter (place, stream, id).
    """
    words = philox((_unsigned(seed), _unsigned(epoch)), _counters(ids, num_streams, -(-count // 4)))
    places = tf.reshape(words, [-1, num_streams, words.shape[2] * 4])[..., :count]
    return tf.cast(tf.bitwise.right_shift(places, _unsigned(8)), tf.float32) / 2**24  # as many bits as float32 keeps


def philox(key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """Returns [..., 4] uint64, random below 2**32, of two words of key and four of counter: uint64 below 2**32."""
    a, b, c, d = counter
    for number in range(_ROUNDS):
        key_a, key_b = (_low(word + _unsigned(number * step)) for word, step in zip(key, _KEY_STEPS, strict=True))
        left, right = a * _unsigned(_MULTIPLIERS[0]), c * _unsigned(_MULTIPLIERS[1])
        a, b, c, d = _xor(_high(right), b, key_a), _low(right), _xor(_high(left), d, key_b), _low(left)
    return tf.stack([a, b, c, d], axis=-1)


def _counters(ids: tf.Tensor, num_streams: int, num_blocks: int) -> tuple[tf.Tensor, ...]:
    """Returns the four words, [b, num_streams, num_blocks] each."""
    zeros = tf.zeros([tf.size(ids), num_streams, num_blocks], tf.uint64)
    id = tf.bitcast(ids, tf.uint64)[:, tf.newaxis, tf.newaxis]
    block, stream = _unsigned(tf.range(num_blocks)), _unsigned(tf.range(num_streams))[:, tf.newaxis]
    return zeros + block, zeros + stream, zeros + _low(id), zeros + _high(id)


def _unsigned(value: int | tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.uint64)


def _low(value: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_and(value, _unsigned(_WORD))


def _high(value: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(value, _unsigned(32))


def _xor(first: tf.Tensor, second: tf.Tensor, third: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(first, second), third)
