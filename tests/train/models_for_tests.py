"""Models that tests train by their import path."""

import keras

from tasks.models.layers import StatelessDropout, SyncBatchNorm


def spare(inputs, num_classes):
    """A branch that the loss does not reach: its variables have no gradient."""
    model = dense(inputs, num_classes)
    model.spare = keras.layers.Dense(3)
    model.spare.build((None, 4))
    return model


def dense(inputs, num_classes):
    """No normalisation and no dropout: the only sums over replicas are those of the gradients and the figures."""
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs["image"]))
    x = keras.layers.Dense(16, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))


def of_rows(inputs, num_classes):
    """A model of a table with batch normalisation and dropout."""
    x = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(list(inputs.values())))
    x = StatelessDropout(0.3)(SyncBatchNorm(momentum=0.9)(x))
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))


def normalised(inputs, num_classes):
    """The dense model with batch normalisation: it has statistics too."""
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs["image"]))
    x = SyncBatchNorm()(keras.layers.Dense(16, activation="relu")(x))
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))


class Fading(keras.layers.Layer):
    """Adds the square root of a weight that a penalty lowers in each step by the learning rate."""

    def build(self, input_shape):
        self.left = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.135), name="left")

    def call(self, inputs):
        self.add_loss(1.0 * self.left)
        return inputs + keras.ops.sqrt(self.left)


def fading(inputs, num_classes):
    """Under SGD with a learning rate of 0.01 the weight is below zero, and no logit a number, from step 15 on."""
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs["image"]))
    return keras.Model(inputs, Fading()(keras.layers.Dense(num_classes)(x)))


class Offset(keras.layers.Layer):
    """Adds a weight that wants to be small."""

    def build(self, input_shape):
        self.offset = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="offset")

    def call(self, inputs):
        self.add_loss(keras.ops.sum(self.offset**2))
        return inputs + self.offset


def penalised(inputs, num_classes):
    """Dropout, a penalty on weights, and one that a layer adds of its own; no normalisation."""
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs["image"]))
    x = keras.layers.Dense(16, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01))(x)
    x = StatelessDropout(0.3)(x)
    return keras.Model(inputs, Offset()(keras.layers.Dense(num_classes)(x)))


class Mixing(keras.layers.Layer):
    """A block that normalises and drops, and does not say to its layers that it is training."""

    def __init__(self, width):
        super().__init__()
        self.inner = keras.Sequential(
            [keras.layers.Dense(width), SyncBatchNorm(momentum=0.9), keras.layers.ReLU(), keras.layers.Dropout(0.3)]
        )
        self.shared = StatelessDropout(0.2)

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.inner.build(input_shape)

    def call(self, x):
        return self.shared(self.scale * self.inner(self.shared(x)))


def blocks(inputs, num_classes):
    """Blocks whose activations need not be kept."""
    x = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs["image"]))
    for _ in range(2):
        x = Mixing(16)(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(x))
