"""A multilayer perceptron for the rows of a table."""

import keras

from tasks.models.layers import StatelessDropout


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    width: int = 128,
    depth: int = 2,
    dropout: float = 0.1,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for all inputs side by side: [b, ...] of any shape and numeric type.

    Numbers, categories and marks of missing values come normalised from the feed; a tensor is taken as it is.
    """
    columns = [keras.layers.Flatten()(keras.ops.cast(value, keras.config.floatx())) for value in inputs.values()]
    x = keras.layers.Concatenate()(columns) if len(columns) > 1 else columns[0]
    for _ in range(depth):
        x = keras.layers.Dense(width, activation="relu")(x)
        x = StatelessDropout(dropout)(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(x))
