"""The user's model: found by its import path, built, and looked at before it is trained."""

import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.patterns import found_in
from tasks.source_code import import_function, run_code_digest

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

logger = logging.getLogger("millstream")


def build_model(
    config: ModelConfig,
    inputs: Mapping[str, tuple[tuple[int, ...], str]],
    num_outputs: int,
    num_values: Mapping[str, int],
) -> "keras.Model":
    """Returns the model of `config.build`, its stock layers made invariant.

    `inputs` are (shape without the batch, dtype) by name: Preprocess.inputs. A function with an argument `num_values`
    is given Preprocess.num_values in it: how many rows an embedding of a text needs, by input.
    Raises ConfigError if the function cannot be imported or called, or returns no model of outputs [b, num_outputs]
    (logits, a single one for two classes, or the numbers of a regression), if the model has a Lambda layer, or if a
    pattern of `config.freeze` is found in no layer or leaves nothing to be trained.
    Call it inside the strategy's scope.
    """
    import keras

    from tasks.models.patches import make_invariant

    build = import_function(config.build, config.folder, setting="model.build")
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
    _refuse_lambdas(model, config.build)
    _freeze(model, config.freeze)
    make_invariant(model)
    return model


def check_invariance(model: "keras.Model", invariance: str) -> None:
    """Names each layer of `model` whose result depends on the number of replicas: as a warning, or, where
    `invariance` is require, in a ConfigError."""
    from tasks.models.patches import varying_layers

    _name(varying_layers(model), invariance)


def check_draws(model: "keras.Model", graph: "tf.Graph", invariance: str, *, said: set[str]) -> None:
    """Does the same for random numbers that are met only when the training step is traced, in `graph`: those of
    tf.random. What is in `said` was named before."""
    from tasks.models.draws import foreign_draws
    from tasks.models.patches import varying_layers

    # A graph numbers the names of what is called more than once.
    known = "|".join(re.escape(line.partition(" ")[0]) for line in varying_layers(model))
    lines = {
        f"{name}: it draws random numbers without a seed that is known; take StatelessDropout"
        for name in foreign_draws(graph)
        if not (known and re.search(rf"(^|/)({known})(_\d+)?(/|$)", name))
    }
    _name(sorted(lines - said), invariance)
    said |= lines


def _name(found: Sequence[str], invariance: str) -> None:
    if found and invariance == "require":
        raise ConfigError(
            f"train.invariance=require: the result of these layers depends on the number of replicas: "
            f"{'; '.join(found)}; or take train.invariance=warn"
        )
    for line in found:
        logger.warning("the result depends on the number of replicas for model layer %s", line)


def code_digest(config: ModelConfig, loss: str = "auto") -> str:
    """Returns a digest of the source files that `config.build`, and a `loss` of one's own, are made of, without
    importing them.

    They are its module and what that imports from the same folder tree; installed packages are left to the versions
    that a run records. Raises ConfigError if the module is not found or one of the files is not valid Python.
    """
    return run_code_digest(config.build, config.folder, loss)


def _refuse_lambdas(model: "keras.Model", build: str) -> None:
    import keras

    found = [layer.name for layer in model._flatten_layers() if isinstance(layer, keras.layers.Lambda)]
    if found:
        raise ConfigError(
            f"model.build={build!r}: {', '.join(found)}: a Lambda layer is saved as Python bytecode, which whoever "
            "loads the model would run unseen; take keras.ops, or a layer class of your own with call and get_config"
        )


def _freeze(model: "keras.Model", patterns: Sequence[str]) -> None:
    layers = [layer for layer in model._flatten_layers(include_self=False) if layer.weights]
    frozen = found_in(patterns, [layer.path for layer in layers], setting="model.freeze")
    for layer in layers:
        if layer.path in frozen:
            layer.trainable = False
    if patterns and not model.trainable_variables:
        raise ConfigError(f"model.freeze={list(patterns)}: leaves nothing of the model to be trained")
