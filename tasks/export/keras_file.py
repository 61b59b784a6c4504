"""The .keras file: config and weights of the model, for `keras.saving.load_model`; it takes what the model takes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from tasks.config import ModelConfig
from tasks.errors import ExportError
from tasks.export.answer import Answer
from tasks.models.patches import take_off_regularizers
from tasks.source_code import import_function

KERAS_FILE = "model.keras"
_LOADS = (
    "and then does not load as a stranger would load it ({error}); give its own layers @keras.saving."
    "register_keras_serializable() and a get_config, or leave keras out of export.formats"
)


def write(model: keras.Model, path: Path) -> None:
    """Writes a model to `path`, without optimizer and loss; raises ExportError if a layer cannot be written."""
    take_off_regularizers(model)
    try:
        model.save(path)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ExportError(f"export.formats: keras: the model cannot be written ({_reason(error)})") from error


def load(path: Path, config: ModelConfig, answer: Answer) -> Callable[..., Mapping[str, NDArray[Any]]]:
    """Returns the model in a file as a function from its inputs, by name, to `answer.main`.

    The module of `config.build` is imported before, since it may have layers of its own. Raises ExportError if the file
    does not load in safe mode.
    """
    import_function(config.build, config.folder, setting="model.build")
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except (TypeError, ValueError) as error:
        raise ExportError(
            f"export.formats: keras: the model is written {_LOADS.format(error=_reason(error))}"
        ) from error

    def answered(**inputs: tf.Tensor) -> dict[str, NDArray[Any]]:
        raw = model({name: inputs[name] for name in model.input}, training=False)
        return {answer.main: answer(raw)[answer.main].numpy()}

    return answered


def _reason(error: Exception) -> str:
    """Returns what Keras says, without the configs that it repeats on the way."""
    return str(error).rpartition("Exception encountered: ")[2].strip().partition("\n")[0]
