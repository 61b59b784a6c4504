"""A convolutional network for short texts, on their bytes or words."""

import keras

from tasks.models.layers import StatelessDropout
from tasks.models.one_text import one_text


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    num_values: dict[str, int],
    width: int = 64,
    depth: int = 2,
    kernel: int = 5,
    dropout: float = 0.1,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for one text: [b, n] whole numbers, 0 behind its end.

    They are its bytes or the places of its words, below the text's `num_values`. Padding counts for nothing: the logits
    of a text do not depend on n, as long as it fits. Raises ConfigError if there are other inputs.
    """
    name, text = one_text(inputs, __name__)
    within = keras.ops.expand_dims(keras.ops.cast(text != 0, keras.config.floatx()), -1)  # [b, n, 1]
    x = keras.layers.Embedding(num_values[name], width)(text) * within
    for _ in range(depth):
        y = keras.layers.Conv1D(width, kernel, padding="same", activation="relu")(x)
        y = StatelessDropout(dropout)(y)
        x = keras.layers.LayerNormalization()(x + y) * within  # by position: no other row or replica comes into it
    mean = keras.ops.sum(x, axis=1) / keras.ops.maximum(keras.ops.sum(within, axis=1), 1)
    # 0 behind the end is no more than the rest after relu.
    largest = keras.ops.max(keras.ops.relu(x), axis=1)
    x = keras.layers.Concatenate()([mean, largest])
    x = keras.layers.Dense(2 * width, activation="relu")(x)
    x = StatelessDropout(dropout)(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(x))
