"""A small convolutional network for small images."""

import keras

from tasks.models.layers import StatelessDropout, SyncBatchNorm


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    width: int = 32,
    dropout: float = 0.2,
    largest_value: float = 255,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for `inputs["image"]`: [b, h, w, c] uint8, 0..largest_value."""
    x = keras.layers.Rescaling(1 / largest_value)(inputs["image"])
    for filters in (width, 2 * width):
        # No bias before the normalisation: its true gradient is zero, and Adam would blow up the rounding in it.
        x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = keras.layers.ReLU()(SyncBatchNorm(momentum=0.9)(x))
        x = keras.layers.MaxPooling2D()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(4 * width, activation="relu")(x)
    x = StatelessDropout(dropout)(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(x))
