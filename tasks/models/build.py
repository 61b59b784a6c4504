"""The user's model: found by its import path, built, and looked at before it is trained."""

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.source_code import source_code_digest

if TYPE_CHECKING:
    import keras

logger = logging.getLogger("millstream")

# Stock layers whose result depends on the number of replicas, and what to use in their place.
REPLICA_DEPENDENT = {
    "BatchNormalization": "tasks.models.layers.SyncBatchNorm",
    "Dropout": "tasks.models.layers.StatelessDropout",
    "SpatialDropout1D": "tasks.models.layers.StatelessDropout",
    "SpatialDropout2D": "tasks.models.layers.StatelessDropout",
    "GaussianDropout": "tasks.models.layers.StatelessDropout",
    "AlphaDropout": "tasks.models.layers.StatelessDropout",
}


def build_model(
    config: ModelConfig,
    inputs: Mapping[str, tuple[tuple[int, ...], str]],
    num_outputs: int,
    num_values: Mapping[str, int],
) -> "keras.Model":
    """Returns the model of `config.build`, its random layers numbered.

    `inputs` are (shape without the batch, dtype) by name: Preprocess.inputs. A function with an argument `num_values`
    is given Preprocess.num_values in it: how many rows an embedding of a text needs, by input.
    Raises ConfigError if the function cannot be imported or called, or returns no model of outputs
    [b, num_outputs]: logits, a single one for two classes, or the numbers of a regression.
    Call it inside the strategy's scope.
    """
    import keras

    from tasks.models.layers import number_random_layers

    build = _import_build(config)
    tensors = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in inputs.items()}
    signature = inspect.signature(build)
    args: dict[str, Any] = {}
    if "num_values" in signature.parameters:
        args["num_values"] = dict(num_values)
    args |= config.args
    try:
        signature.bind(tensors, num_outputs, **args)
    except TypeError as error:
        raise ConfigError(
            f"model.build={config.build!r}: does not take model.args={config.args}: {error}; its signature must be "
            "build(inputs: dict[str, keras.KerasTensor], num_classes: int, **args) -> keras.Model"
        ) from None
    model = build(tensors, num_outputs, **args)
    if not isinstance(model, keras.Model):
        raise ConfigError(f"model.build={config.build!r}: returned {type(model).__name__}, not a keras.Model")
    if not isinstance(model.input, dict) or set(model.input) - set(inputs):
        raise ConfigError(
            f"model.build={config.build!r}: its inputs are not by name; end it with keras.Model(inputs, ...), "
            f"inputs being the dict of {', '.join(inputs)} that it was given"
        )
    if model.output_shape != (None, num_outputs):
        raise ConfigError(
            f"model.build={config.build!r}: its output has the shape {model.output_shape}; "
            f"it must be logits of shape (None, {num_outputs}), one for each class"
        )
    for layer in model._flatten_layers():
        better = REPLICA_DEPENDENT.get(type(layer).__name__)
        if better and not getattr(layer, "synchronized", False):
            logger.warning(
                "model layer %s (%s): its result depends on the number of replicas; %s does not",
                layer.name,
                type(layer).__name__,
                better,
            )
    number_random_layers(model)
    return model


def code_digest(config: ModelConfig) -> str:
    """Returns a digest of the source files that `config.build` is made of, without importing them.

    They are its module and what that imports from the same folder tree; installed packages are left to the versions
    that a run records. Raises ConfigError if the module is not found or one of the files is not valid Python.
    """
    module = config.build.partition(":")[0]
    return source_code_digest(module, config.folder, setting=f"model.build={config.build!r}")


def _import_build(config: ModelConfig) -> Callable[..., Any]:
    module, _, function = config.build.partition(":")
    if config.folder and config.folder not in sys.path:
        sys.path.insert(0, config.folder)
    try:
        return getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ConfigError(
            f"model.build={config.build!r}: cannot be imported: {error}; is model.folder right?"
        ) from error
    except AttributeError as error:
        raise ConfigError(f"model.build={config.build!r}: {error}; name a function of that module") from error
