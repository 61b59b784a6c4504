"""Stock layers draw and normalise by the global batch within a training step, and are Keras's own outside of one."""

import inspect
import sys
from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf

from tasks.models.patches import make_invariant, varying_layers
from tasks.models.rows import ReplicaRows, replica_rows

layers = keras.layers
StochasticDepth = sys.modules[keras.applications.ConvNeXtTiny.__module__].StochasticDepth
BATCH = np.random.default_rng(0).normal(2, 1, (8, 6, 6, 4)).astype(np.float32)
RANDOM = {
    "dropout": lambda: layers.Dropout(0.4),
    "one mask for all": lambda: layers.Dropout(0.4, noise_shape=(1, None, 6, 1)),
    "spatial": lambda: layers.SpatialDropout2D(0.4),
    "gaussian dropout": lambda: layers.GaussianDropout(0.4),
    "gaussian noise": lambda: layers.GaussianNoise(0.4),
    "alpha dropout": lambda: layers.AlphaDropout(0.4),
    "stochastic depth": lambda: StochasticDepth(0.4),
}


def rows(first=0, count=8, mask=None):
    mask = tf.ones([count], tf.bool) if mask is None else tf.constant(mask)
    return ReplicaRows(7, tf.constant(3, tf.int64), tf.constant(first, tf.int64), mask, 1, num_valid=8)


def patched(layer, shape=BATCH.shape[1:]):
    model = keras.Sequential([keras.Input(shape), layer])
    make_invariant(model)
    return layer


def trained(layer, inputs, context):
    with replica_rows(context):
        return layer(tf.constant(inputs), training=True)


@pytest.mark.parametrize("name", RANDOM)
def test_a_replica_draws_its_rows_of_what_one_would_draw(name):
    layer = patched(RANDOM[name]())
    whole = trained(layer, BATCH, rows())
    assert np.abs(whole - BATCH).max() > 0.1
    for first, count in ((0, 3), (3, 5)):
        part = trained(layer, BATCH[first : first + count], rows(first, count))
        np.testing.assert_array_equal(part, whole[first : first + count])
    np.testing.assert_array_equal(trained(layer, BATCH, rows()), whole)
    np.testing.assert_array_equal(layer(BATCH), BATCH)
    assert not np.array_equal(layer(BATCH, training=True), whole), "Keras's own draw outside of a step"


@pytest.mark.parametrize("name", RANDOM)
def test_mean_and_spread_are_those_of_keras(name):
    keras.utils.set_random_seed(1)
    x = np.ones((2000, 6, 6, 4), np.float32)
    layer, stock = patched(RANDOM[name]()), RANDOM[name]()
    ours, theirs = trained(layer, x, rows(count=2000)), stock(x, training=True)
    atol = 0.4 if name == "one mask for all" else 0.06
    np.testing.assert_allclose(np.mean(ours), np.mean(theirs), atol=atol)
    np.testing.assert_allclose(np.std(ours), np.std(theirs), atol=atol)


def test_a_layer_over_reshaped_examples_draws_by_their_rows_and_one_over_a_table_the_same_everywhere():
    layer = patched(layers.Dropout(0.4))
    flat = np.ones((8 * 5, 3), np.float32)
    whole = trained(layer, flat, rows())
    np.testing.assert_array_equal(trained(layer, flat[15:], rows(3, 5)), whole[15:])
    table = np.ones((7, 3), np.float32)
    np.testing.assert_array_equal(trained(layer, table, rows(3, 5)), trained(layer, table, rows(0, 3)))


@pytest.mark.parametrize("cell", [layers.LSTMCell, partial(layers.GRUCell, implementation=1), layers.SimpleRNNCell])
def test_a_cells_masks_are_drawn_by_row(cell):
    layer = patched(layers.RNN(cell(5, dropout=0.4, recurrent_dropout=0.4)), (6, 24))
    x = BATCH.reshape(8, 6, 24)
    whole = trained(layer, x, rows())
    part = trained(layer, x[3:], rows(3, 5))
    np.testing.assert_allclose(part, whole[3:], atol=1e-6)
    assert np.abs(whole - layer(x)).max() > 0.01


@pytest.mark.parametrize("kind", [layers.Attention, layers.AdditiveAttention])
def test_attention_drops_by_row(kind):
    x = BATCH[:, 0]
    query = keras.Input((6, 4))
    layer = kind(dropout=0.4)
    make_invariant(keras.Model(query, layer([query, query])))

    def attended(values, context):
        with replica_rows(context):
            return layer([tf.constant(values), tf.constant(values)], training=True)

    whole = attended(x, rows())
    np.testing.assert_allclose(attended(x[3:], rows(3, 5)), whole[3:], atol=1e-6)
    assert np.abs(whole - layer([x, x])).max() > 0.01


@pytest.mark.parametrize("args", [{}, {"axis": 1, "center": False}, {"axis": 2, "scale": False}])
def test_batch_normalisation_leaves_padding_out(args):
    layer, stock = patched(layers.BatchNormalization(**args)), layers.BatchNormalization(**args)
    padded = np.concatenate([BATCH, np.full((3, 6, 6, 4), 9, np.float32)])
    found = trained(layer, padded, rows(count=11, mask=[True] * 8 + [False] * 3))[:8]
    np.testing.assert_allclose(found, stock(BATCH, training=True), atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, stock.moving_mean, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, stock.moving_variance, atol=1e-6)
    np.testing.assert_allclose(layer(BATCH), stock(BATCH), atol=1e-6)


def test_batch_normalisation_keeps_a_mask_of_its_input():
    layer, stock = patched(layers.BatchNormalization(), (6, 4)), layers.BatchNormalization()
    x, mask = BATCH[:, 0], np.random.default_rng(1).random((8, 6)) < 0.5
    with replica_rows(rows()):
        found = layer(tf.constant(x), training=True, mask=tf.constant(mask))
    np.testing.assert_allclose(found, stock(x, training=True, mask=mask), atol=1e-4)  # Keras adds to the count


def test_a_frozen_layer_keeps_its_statistics():
    layer = patched(layers.BatchNormalization())
    layer.trainable = False
    np.testing.assert_array_equal(trained(layer, BATCH, rows()), layer(BATCH))
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(4))


def test_an_activity_penalty_is_the_mean_over_the_examples():
    layer = patched(layers.ActivityRegularization(l2=0.5))
    padded = np.concatenate([BATCH, np.ones((2, 6, 6, 4), np.float32)])
    found = 0.0
    for part, valid in ((padded[:5], [True] * 5), (padded[5:], [True] * 3 + [False] * 2)):
        context = rows(count=5, mask=valid)
        context.num_parts = 2
        trained(layer, part, context)
        found += float(layer.losses[0]) / 2
    assert found == pytest.approx(0.5 * float(np.square(BATCH).sum()) / 8, rel=1e-6)


class Halved(layers.Dropout):
    def call(self, inputs, training=False):
        return super().call(inputs, training=training) / 2


class Drawing(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, inputs):
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seeds)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (layers.RandomRotation(0.1), "draws random numbers of its own"),
        (Drawing(), "draws random numbers of its own"),
        (Halved(0.1), "its class changes call of Dropout"),
        (layers.BatchNormalization(renorm=True), "renorm=True"),
        (layers.Dropout(0.1, noise_shape=(8, 6, 6, 4)), "noise_shape fixes the number of examples"),
        (layers.Dense(2, activity_regularizer=keras.ops.max), "is none of L1, L2 and L1L2"),
        (layers.LSTM(2, stateful=True), "stateful=True"),
    ],
)
def test_what_cannot_be_patched_is_named(layer, reason):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = layer

    model = Model()
    make_invariant(model)
    [line] = varying_layers(model)
    assert layer.name in line
    assert reason in line


def test_what_can_be_patched_is_not_named():
    block = keras.Sequential([layers.LSTM(3, dropout=0.1), *(make() for make in RANDOM.values())])
    model = keras.Sequential([layers.MultiHeadAttention(2, 2, dropout=0.1), layers.BatchNormalization(), block])
    make_invariant(model)
    assert varying_layers(model) == []


def test_the_names_of_keras_that_the_patches_rely_on_are_there():
    def parameters(function):
        return list(inspect.signature(function).parameters)

    assert parameters(layers.BatchNormalization.call) == ["self", "inputs", "training", "mask"]
    for kind in (layers.Dropout, layers.SpatialDropout1D, layers.GaussianDropout, layers.GaussianNoise):
        assert parameters(kind.call) == ["self", "inputs", "training"]
    assert parameters(StochasticDepth.call) == ["self", "x", "training"]
    assert parameters(layers.AlphaDropout.call) == ["self", "inputs", "training"]
    assert parameters(layers.SpatialDropout3D(0.1)._get_noise_shape) == ["inputs"]
    assert parameters(layers.Attention._apply_scores) == ["self", "scores", "value", "scores_mask", "training"]
    assert layers.AdditiveAttention._apply_scores is layers.Attention._apply_scores
    made = layers.LSTMCell._create_dropout_mask
    assert parameters(made) == ["self", "step_input", "dropout_rate"]
    cells = (layers.GRUCell, layers.SimpleRNNCell, type(layers.ConvLSTM2D(1, 1).cell))
    assert all(cell._create_dropout_mask is made for cell in cells)
    assert layers.LSTMCell(2, implementation=1).dropout_mask_count == 4
    nested = layers.MultiHeadAttention(1, 2, dropout=0.1)
    nested.build((2, 3, 4), (2, 3, 4))
    assert nested.path == nested.name
    assert any(type(layer) is layers.Dropout for layer in nested._flatten_layers())
    assert len(layers.RandomFlip()._seed_generators) == 1
