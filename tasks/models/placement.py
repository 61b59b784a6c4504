"""Placement: layers of a model on devices of their own, in each replica."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tasks.distribution import Distribute, ModelParallel
from tasks.errors import ConfigError
from tasks.patterns import found_in
from tasks.workers.devices import device_groups


@dataclass(frozen=True)
class _Devices:
    """The device of one layer in each replica, by TensorFlow's full names; as a variable that is mirrored on them."""

    _devices: tuple[str, ...]  # what tf.distribute asks of a variable beside which another is to be placed
    _replicas: tuple[str, ...]  # the first device of each group

    def of_this_replica(self) -> str:
        context = tf.distribute.get_replica_context()
        (device,) = ("",) if context is None else tf.nest.flatten(context.devices)
        # While a model is built or looked at there is no replica.
        return self._devices[self._replicas.index(device) if device in self._replicas else 0]


def build_placed(distribute: Distribute, build: Callable[[], keras.Model]) -> keras.Model:
    """Returns the model that `build` makes, its layers on the devices that `distribute.place` names, weights and all.

    The optimizer's variables follow the weights by themselves. The gradient of a layer's product is computed on the
    first device of its group. Call it in the strategy's scope. Raises ConfigError if a pattern fits no layer.
    """
    if not isinstance(distribute, ModelParallel):
        return build()
    groups = device_groups(distribute)

    def devices_of(name: str) -> _Devices | None:
        for pattern, number in distribute.place.items():
            if re.search(pattern, name):
                return _Devices(tuple(group[number] for group in groups), tuple(group[0] for group in groups))
        return None

    def create(next_creator: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
        # A variable is created in the name scope of its layer. tf.distribute puts it on the devices of the replicas,
        # whatever tf.device says, unless it is to lie beside another.
        devices = devices_of(tf.get_current_name_scope())
        return next_creator(**kwargs, **({"colocate_with": devices} if devices else {}))

    with tf.variable_creator_scope(create):
        model = build()
    found_in(list(distribute.place), [layer.name for layer in model.layers], setting="distribute.place")
    for layer in model.layers:
        devices = devices_of(layer.name)
        if devices is not None:
            _check_weights(layer, devices)
            layer.call = _on(devices, layer.call)
    return model


def _check_weights(layer: keras.layers.Layer, devices: _Devices) -> None:
    for weight in layer.weights:
        found = tuple(part.device for part in getattr(weight.value, "values", [weight.value]))
        if found != devices._devices:
            raise ConfigError(
                f"distribute.place: {layer.name} has the weight {weight.path}, which was made before it and lies on "
                f"{found[0]}; place the layers inside by their own names, with a pattern that is no whole path"
            )


def _on(devices: _Devices, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)  # Keras looks at its signature
    def placed(*args: Any, **kwargs: Any) -> Any:
        with tf.device(devices.of_this_replica()):
            return call(*args, **kwargs)

    return placed
