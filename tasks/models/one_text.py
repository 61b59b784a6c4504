"""The one text: what a model for texts takes, and no other input beside it."""

import keras

from tasks.errors import ConfigError


def one_text(inputs: dict[str, keras.KerasTensor], build: str) -> tuple[str, keras.KerasTensor]:
    """Returns name and tensor of the only input; raises ConfigError, which names `build`, if there are others."""
    if len(inputs) != 1:
        raise ConfigError(
            f"model.build={build}:build: takes one text, but the data has the inputs {', '.join(inputs)}; name one "
            "in data.source, or write a model of your own"
        )
    [found] = inputs.items()
    return found
