"""The loss of an example: cross-entropies, with label smoothing and class weights, and those of a regression."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tasks.config import TrainConfig
from tasks.errors import ConfigError
from tasks.source_code import import_function

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
CLASSES_SHOWN = 12
_REGRESSION: dict[str, Loss] = {
    "auto": keras.losses.mean_squared_error,
    "mse": keras.losses.mean_squared_error,
    "mae": keras.losses.mean_absolute_error,
    "huber": keras.losses.huber,
}
NUMPY_LOSSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "auto": np.square,
    "mse": np.square,
    "mae": np.abs,
    "huber": lambda errors: np.where(errors <= 1, errors**2 / 2, errors - 0.5),
}
"""The same of absolute errors, for what is told of a whole split."""


def own_loss(path: str, folder: str | None, weights: list[float] | None) -> Loss:
    """Returns the loss 'module:function' of the user's, whose module may lie in `folder`, times the classes' weights.

    Raises ConfigError if it cannot be imported, or, once it is called, returns no loss of each example.
    """
    setting = f"train.loss={path!r}"
    function = import_function(path, folder, setting="train.loss")

    def loss(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        losses = _of_each_example(function(targets, outputs), outputs, setting=setting)
        return losses if weights is None else losses * tf.gather(tf.constant(weights, losses.dtype), targets)

    return loss


def cross_entropy(num_classes: int, weights: list[float] | None, smoothing: float) -> Loss:
    """Returns loss(labels, logits): [b] in nats, of [b] int64 and [b, num_classes], in the type of the logits.

    `weights` are of the classes; `smoothing` is the share of a label that is spread evenly over all of them.
    """

    def loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if smoothing:
            targets = tf.one_hot(labels, num_classes, dtype=logits.dtype)
            losses = keras.losses.categorical_crossentropy(targets, logits, from_logits=True, label_smoothing=smoothing)
        else:
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return losses if weights is None else losses * tf.gather(tf.constant(weights, losses.dtype), labels)

    return loss


def sigmoid_cross_entropy(weights: list[float] | None, smoothing: float) -> Loss:
    """Returns loss(targets, logits): [b] in nats, the mean over the classes, of two [b, num_classes].

    Targets are 0 or 1, of any type. `weights` are of the classes; `smoothing` is the share of a target that is spread
    evenly over there and not there.
    """

    def loss(targets: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        wanted = tf.cast(targets, logits.dtype) * (1 - smoothing) + smoothing / 2
        losses = tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits)
        return tf.reduce_mean(losses if weights is None else losses * tf.constant(weights, losses.dtype), axis=1)

    return loss


def regression_loss(kind: str) -> Loss:
    """Returns loss(targets, outputs): [b], the mean over the numbers, of two [b, num_numbers] of one type."""
    return _REGRESSION[kind]


def _of_each_example(losses: object, logits: tf.Tensor, *, setting: str) -> tf.Tensor:
    shape = getattr(losses, "shape", None)
    if shape is None or list(shape) != list(logits.shape[:1]):
        raise ConfigError(
            f"{setting}: returned {'nothing with a shape' if shape is None else f'the shape {tuple(shape)}'} for "
            f"{logits.shape[0]} examples; it must return the loss of each, [b], and leave their mean to the training, "
            "which knows the whole batch"
        )
    return tf.cast(losses, logits.dtype)


def class_weights(config: TrainConfig, label_map: Sequence[str], class_counts: Sequence[int]) -> list[float] | None:
    """Returns the weight of each class, in the order of the label map; None if all are 1.

    `class_counts` are the training split's. Raises ConfigError if a weight is given to a class that there is not.
    """
    given = config.class_weights
    if given is None:
        return None
    if given == "balanced":  # as scikit-learn's compute_class_weight
        return [sum(class_counts) / (len(class_counts) * count) for count in class_counts]
    for name in given:
        if name not in label_map:
            shown = ", ".join(label_map[:CLASSES_SHOWN]) + (", ..." if len(label_map) > CLASSES_SHOWN else "")
            raise ConfigError(f"train.class_weights: {name!r} is no class of the data; its classes are {shown}")
    return [given.get(name, 1.0) for name in label_map]
