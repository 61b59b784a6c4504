"""Models of Keras's own layers, which depend on the number of replicas unless they are patched."""

import keras
import tensorflow as tf

layers = keras.layers


class Block(layers.Layer):
    """A layer as users write it, with layers in it that are random or normalise."""

    def __init__(self, width):
        super().__init__()
        self.dense = layers.Dense(width, activity_regularizer=keras.regularizers.L2(0.01))
        self.inner = [layers.BatchNormalization(momentum=0.9), layers.GaussianDropout(0.2), layers.Dropout(0.3)]

    def build(self, input_shape):
        self.dense.build(input_shape)
        self.inner[0].build(self.dense.compute_output_shape(input_shape))

    def call(self, x, training=False):
        x = self.dense(x)
        for layer in self.inner:
            x = layer(x, training=training)
        return x


def image(inputs, num_classes):
    """Convolutions: normalisation along the first axis too, whole maps dropped, noise, a nested model."""
    x = layers.Rescaling(1 / 16)(inputs["image"])
    x = layers.Conv2D(4, 3, padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9, scale=False)(x))
    x = layers.GaussianNoise(0.1)(layers.SpatialDropout2D(0.2)(x))
    x = layers.Permute((3, 1, 2))(layers.MaxPooling2D()(x))
    x = layers.Flatten()(layers.BatchNormalization(axis=1)(x))
    x = keras.Sequential([layers.Dense(16, activation="selu"), layers.AlphaDropout(0.1)])(x)
    return keras.Model(inputs, layers.Dense(num_classes)(Block(16)(x)))


def sequence(inputs, num_classes):
    """Rows of an image as steps: attention of both kinds, a recurrent layer, a mask."""
    x = layers.Reshape((8, 8))(layers.Rescaling(1 / 16)(inputs["image"]))
    x = layers.Masking(0.0)(x)  # the digits' blank lines
    x = layers.BatchNormalization(momentum=0.9)(layers.Dense(8)(x))
    x = layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2, return_sequences=True)(x)
    x = x + layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x)
    x = layers.Attention(dropout=0.2)([x, x])
    x = layers.Dropout(0.2, noise_shape=(None, 1, 8))(x)
    x = layers.Bidirectional(layers.GRU(4, dropout=0.2))(layers.SpatialDropout1D(0.2)(x))
    return keras.Model(inputs, layers.Dense(num_classes)(x))


def flipped(inputs, num_classes):
    """A random layer for which there is no patch."""
    x = layers.Rescaling(1 / 16)(layers.RandomFlip()(inputs["image"]))
    return keras.Model(inputs, layers.Dense(num_classes)(layers.Flatten()(x)))


class Noisy(layers.Layer):
    """Draws without a seed of its own."""

    def call(self, x, training=False):
        return x + tf.random.normal(tf.shape(x), stddev=0.1, dtype=x.dtype) if training else x


def noisy(inputs, num_classes):
    """A layer whose random numbers are met only when it is called."""
    x = layers.Flatten()(layers.Rescaling(1 / 16)(inputs["image"]))
    return keras.Model(inputs, layers.Dense(num_classes)(Noisy(name="mine")(x)))
