"""Recomputation: parts of a model whose activations are not kept for the backward pass, but computed again in it.

The second time they are the same to the bit: the masks of dropout are drawn again, not anew, and statistics of
normalisation are as they were before the first, and are not moved again.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tasks.errors import ConfigError
from tasks.models.rows import Replay, current_rows, replica_rows
from tasks.patterns import found_in

SETTING = "train.recompute"


def recompute(model: keras.Model, which: bool | Sequence[str]) -> None:
    """Changes `model` so that, in a training step, it keeps fewer activations.

    `which` are patterns for the paths of layers, such as blocks, of which only the inputs are kept; or True: the model
    is cut where all that goes on is one tensor, into about as many parts as each has operations (Chen et al. 2016).
    Raises ConfigError if a pattern is found in no layer, a model has no such places, or, once it is called, if a part
    adds losses of its own or hands on a mask.
    """
    if which is True:
        _recompute_parts(model)
    elif which:
        layers = {layer.path: layer for layer in model._flatten_layers(include_self=False) if layer.path}
        within: set[int] = set()
        for path in found_in(which, layers, setting=SETTING):
            if id(layers[path]) not in within:  # what lies in one that is recomputed is so with it
                within |= {id(inner) for inner in layers[path]._flatten_layers()}
                layers[path].call = _recomputed(layers[path].call, layers[path])


def _recompute_parts(model: keras.Model) -> None:
    places = _narrow_places(model) if hasattr(model, "_nodes_by_depth") else []
    if len(places) < 2:
        raise ConfigError(
            f"{SETTING}=true: the model is no chain of parts that one tensor connects; name the layers to be "
            f"recomputed, such as {SETTING}=[block], in a model that has layers of layers"
        )
    distance = math.isqrt(len(places))
    ends = [*places[distance - 1 : -1 : distance], places[-1]]
    starts = [model.input, *ends[:-1]]
    parts = [keras.Model(start, end) for start, end in zip(starts, [*ends[:-1], model.output], strict=True)]
    calls = [_recomputed(part.call, part) for part in parts]
    stock = model.call

    def call(inputs: Any, training: bool | None = None, mask: Any = None, **options: Any) -> Any:
        if current_rows() is None or not training:
            return stock(inputs, training=training, mask=mask, **options)
        for each in calls:
            inputs = each(inputs, training=True)
        return inputs

    model.call = call


def _narrow_places(model: keras.Model) -> list[keras.KerasTensor]:
    """Returns the tensors of a functional model through which all goes that is computed after them, in order."""
    nodes = [node for depth in sorted(model._nodes_by_depth, reverse=True) for node in model._nodes_by_depth[depth]]
    last_use = {id(tensor): place for place, node in enumerate(nodes) for tensor in node.input_tensors}
    last_use[id(model.output)] = len(nodes)
    found: list[keras.KerasTensor] = []
    live: set[int] = set()
    for place, node in enumerate(nodes):
        live |= {id(tensor) for tensor in node.output_tensors}
        live = {each for each in live if last_use.get(each, 0) > place}
        begins_later = any(not other.input_tensors for other in nodes[place + 1 :])
        if node.input_tensors and live == {id(node.output_tensors[0])} and not begins_later:
            found.append(node.output_tensors[0])
    return found


class _Part(keras.layers.Layer):
    """A function as a layer: it is told whether it is training, and in which type, however deep it is called."""

    def __init__(self, function: Callable[..., Any], layer: keras.layers.Layer) -> None:
        super().__init__(name="recomputed", dtype=layer.dtype_policy, autocast=layer.autocast)
        self.function = function

    def call(self, *tensors: tf.Tensor, training: bool = False) -> Any:
        return self.function(*tensors)


def _recomputed(call: Callable[..., Any], layer: keras.layers.Layer) -> Callable[..., Any]:
    """Returns `call` of a layer, or of a part of a model, as one that keeps nothing but what it is given."""

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        rows = current_rows()
        if rows is None or not kwargs.get("training", True):
            return call(*args, **kwargs)
        values = tf.nest.flatten((args, kwargs))
        # The others have no gradient, and are kept as they are.
        places = [i for i, value in enumerate(values) if tf.is_tensor(value) and value.dtype.is_floating]
        replay = Replay(dict(rows.calls))

        def function(*tensors: tf.Tensor) -> Any:
            now = list(values)
            for place, tensor in zip(places, tensors, strict=True):
                now[place] = tensor
                if (mask := getattr(values[place], "_keras_mask", None)) is not None:
                    tensor._keras_mask = mask
            given, named = tf.nest.pack_sequence_as((args, kwargs), now)
            return call(*given, **named)

        part = _Part(function, layer)

        def run(*tensors: tf.Tensor) -> Any:
            rows.replay, rows.calls = replay, dict(replay.calls)
            replay.runs, replay.place = replay.runs + 1, 0
            with replica_rows(rows):
                outputs = part(*tensors, training=True)
            rows.replay = None
            if any(getattr(output, "_keras_mask", None) is not None for output in tf.nest.flatten(outputs)):
                raise ConfigError(
                    f"{SETTING}: {layer.name} hands on a mask, which would be lost; recompute other layers"
                )
            return outputs

        outputs = tf.recompute_grad(run)(*(values[place] for place in places))
        _refuse_losses(layer)
        return outputs

    return recomputed


def _refuse_losses(layer: keras.layers.Layer) -> None:
    for inner in layer._flatten_layers():
        if inner._losses:
            raise ConfigError(
                f"{SETTING}: layer {inner.name} adds a loss, whose gradient would be lost with the activations; leave "
                "it out of the layers to be recomputed"
            )
