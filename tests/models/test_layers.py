"""Layers give each replica its share of what one replica would compute."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.models.draws import random_words
from tasks.models.layers import StatelessDropout, SyncBatchNorm
from tasks.models.rows import ReplicaRows, replica_rows


def rows(first=0, count=8, step=3, seed=7):
    return ReplicaRows(
        seed, tf.constant(step, tf.int64), tf.constant(first, tf.int64), tf.ones([count], tf.bool), num_replicas=1
    )


@pytest.mark.parametrize("width", [1, 3, 4, 1001])
def test_slices_are_bit_equal_to_the_full_draw(width):
    full = random_words(rows(), 1, tf.constant([8, width]))
    for first, count in ((0, 2), (2, 3), (5, 3)):
        part = random_words(rows(first, count), 1, tf.constant([count, width]))
        assert np.array_equal(part, full[first : first + count])


def test_masks_differ_by_seed_step_layer_and_call():
    shape = tf.constant([8, 16])
    twice = rows()
    draws = [
        random_words(twice, 0, shape),
        random_words(twice, 0, shape),
        random_words(rows(), 1, shape),
        random_words(rows(step=4), 0, shape),
        random_words(rows(seed=8), 0, shape),
    ]
    assert len({draw.numpy().tobytes() for draw in draws}) == len(draws)
    assert np.array_equal(draws[0], random_words(rows(), 0, shape))


def test_dropout_drops_its_share_scales_the_rest_and_is_off_outside_training():
    layer, ones = StatelessDropout(0.25), tf.ones([8, 5000])
    with replica_rows(rows()):
        dropped = layer(ones, training=True).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.01
    assert np.array_equal(layer(ones), ones)


def test_batch_norm_leaves_padding_out_and_matches_keras_on_the_rest():
    import keras

    x = np.random.default_rng(0).normal(5, 2, [6, 4, 4, 3]).astype(np.float32)
    padded = np.concatenate([x, np.zeros([2, 4, 4, 3], np.float32)])
    ours, stock = SyncBatchNorm(), keras.layers.BatchNormalization()
    context = rows(count=8)
    context.mask = tf.constant([True] * 6 + [False] * 2)
    with replica_rows(context):
        y = ours(padded, training=True)
    assert np.allclose(y[:6], stock(x, training=True), atol=1e-5)
    assert np.allclose(ours.moving_mean, stock.moving_mean, atol=1e-5)
    assert np.allclose(ours.moving_variance, stock.moving_variance, atol=1e-5)
    assert np.allclose(ours(x), stock(x), atol=1e-5)


def test_the_statistics_of_16_bit_inputs_are_those_of_float32():
    values = np.random.default_rng(0).normal(300, 5, size=(64, 3)).astype(np.float16)  # squares overflow
    layer = SyncBatchNorm(momentum=0.0, dtype="mixed_float16")
    with replica_rows(rows(count=64)):
        found = layer(tf.constant(values), training=True)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(layer.moving_mean, exact.mean(0), rtol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, exact.var(0), rtol=5e-3)  # the first shift is 0
    assert found.dtype == tf.float16
    expected = (exact - exact.mean(0)) / np.sqrt(exact.var(0) + layer.epsilon)
    np.testing.assert_allclose(found, expected, atol=1e-2)


def test_padding_alone_leaves_the_statistics_as_they_are():
    layer = SyncBatchNorm(momentum=0.9)
    nothing = ReplicaRows(7, tf.constant(3, tf.int64), tf.constant(0, tf.int64), tf.zeros([4], tf.bool), 1)
    with replica_rows(nothing):
        found = layer(tf.ones([4, 2]), training=True)
    assert np.isfinite(found).all()
    assert np.array_equal(layer.moving_mean, [0, 0])
    assert np.array_equal(layer.moving_variance, [1, 1])
