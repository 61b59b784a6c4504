"""The loss of an example: cross-entropy, with label smoothing and class weights."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tasks.config import TrainConfig
from tasks.errors import ConfigError
from tasks.source_code import import_function

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
CLASSES_SHOWN = 12


def build_loss(
    config: TrainConfig, label_map: Sequence[str], class_counts: Sequence[int], *, folder: str | None = None
) -> Loss:
    """Returns loss(labels, logits): [b] in nats, of [b] int64 and [b, num_classes], in the type of the logits.

    `class_counts` are the training split's; `folder` is put on the import path for `train.loss`. Raises ConfigError if
    a weight is given to a class that there is not, or `train.loss` cannot be imported or gives no loss of each example.
    """
    own = import_function(config.loss, folder, setting="train.loss") if config.loss else None
    weights = class_weights(config, label_map, class_counts)
    smoothing = config.label_smoothing

    def loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if own is not None:
            losses = _of_each_example(own(labels, logits), logits, setting=f"train.loss={config.loss!r}")
        elif smoothing:
            targets = tf.one_hot(labels, len(label_map), dtype=logits.dtype)
            losses = keras.losses.categorical_crossentropy(targets, logits, from_logits=True, label_smoothing=smoothing)
        else:
            losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return losses if weights is None else losses * tf.gather(tf.constant(weights, losses.dtype), labels)

    return loss


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
    """Returns the weight of each class, in the order of the label map; None if all are 1. Raises as `build_loss`."""
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
