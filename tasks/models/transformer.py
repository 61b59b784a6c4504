"""A small transformer encoder for short texts, on their bytes or words (Vaswani et al. 2017, normalised before)."""

from typing import Any

import keras

from tasks.errors import ConfigError
from tasks.models.layers import StatelessDropout
from tasks.models.one_text import one_text


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    num_values: dict[str, int],
    width: int = 64,
    depth: int = 2,
    heads: int = 4,
    dropout: float = 0.1,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for one text: [b, n] whole numbers, 0 behind its end.

    They are its bytes or the places of its words, below the text's `num_values`. Nothing attends to padding. Raises
    ConfigError if there are other inputs, or the width is no multiple of the heads.
    """
    name, text = one_text(inputs, __name__)
    if width % heads:
        raise ConfigError(f"model.args: width={width} must be a multiple of heads={heads}, among which it is shared")
    within = text != 0  # [b, n]
    x = StatelessDropout(dropout)(Positions()(keras.layers.Embedding(num_values[name], width)(text)))
    for _ in range(depth):
        y = keras.layers.LayerNormalization()(x)
        attention = keras.layers.MultiHeadAttention(heads, width // heads, dropout=dropout)
        y = attention(y, y, attention_mask=keras.ops.expand_dims(within, 1))
        x = x + StatelessDropout(dropout)(y)
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation="gelu")(y))
        x = x + StatelessDropout(dropout)(y)
    weights = keras.ops.expand_dims(keras.ops.cast(within, keras.config.floatx()), -1)
    x = keras.layers.LayerNormalization()(x) * weights
    mean = keras.ops.sum(x, axis=1) / keras.ops.maximum(keras.ops.sum(weights, axis=1), 1)
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(mean))


@keras.saving.register_keras_serializable(package="millstream")
class Positions(keras.layers.Layer):
    """Adds to each place of a text what is learned of that place."""

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.places = self.add_weight(shape=input_shape[1:], initializer="uniform", name="places")

    def call(self, inputs: Any) -> Any:
        """Returns `inputs`, [b, n, c], with the [n, c] of the places added."""
        return inputs + self.places
