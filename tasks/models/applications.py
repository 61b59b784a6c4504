"""The networks of keras.applications by their names, to be trained on one's own classes."""

import sys
from typing import Any

import keras

from tasks.errors import ConfigError

NAMES = sorted(name for name in vars(keras.applications) if name[0].isupper())


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    name: str,
    weights: None = None,
    dropout: float = 0.0,
    **options: Any,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for one image: [b, h, w, 3] uint8.

    `name` is a class of keras.applications, such as ResNet50; `options` are its own, such as alpha of MobileNetV2. The
    network's own preprocessing comes first; its last features are pooled, and a dense layer makes logits of them after
    `dropout`. Its weights are drawn anew: those of a file come by model.warm_start. Raises ConfigError if the arguments
    or the data do not fit.
    """
    setting = f"model.build={__name__}:build"
    if name not in NAMES:
        raise ConfigError(f"{setting}: model.args.name={name!r} is none of {', '.join(NAMES)}")
    if weights is not None:
        raise ConfigError(
            f"{setting}: model.args.weights={weights!r} must be null, because Keras would fetch a file for "
            "whose contents no run can vouch; take weights that you have with model.warm_start"
        )
    if len(inputs) != 1:
        raise ConfigError(f"{setting}: takes one image, but the data has the inputs {', '.join(inputs)}")
    network = getattr(keras.applications, name)
    [image] = inputs.values()
    x = sys.modules[network.__module__].preprocess_input(keras.ops.cast(image, keras.config.floatx()))
    try:
        features = network(include_top=False, weights=None, input_tensor=x, pooling="avg", **options).output
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{setting}: {name} does not take {image.shape[1:]} or model.args={options}: {error}"
        ) from error
    # Keras's own, by row on any number of replicas once the model is built.
    features = keras.layers.Dropout(dropout)(features) if dropout else features
    return keras.Model(inputs, keras.layers.Dense(num_classes, dtype=keras.config.floatx())(features))
