"""The head: what data.target.kind makes of a model's outputs: loss, figures and predictions."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import expit, softmax

from tasks.config import Config
from tasks.errors import ConfigError
from tasks.prepare.manifest import ShardManifest
from tasks.train.loss import NUMPY_LOSSES, Loss, class_weights, cross_entropy, regression_loss, sigmoid_cross_entropy

Floats = NDArray[np.float64]


class Head(Protocol):
    """What becomes of `outputs`, [b, manifest.num_outputs] of a floating type, and `targets` as the feed has them."""

    @property
    def metric(self) -> str:
        """The figure that a training shows beside its loss; of a validation it is val_<metric>."""

    @property
    def answer(self) -> str:
        """What `predictions` are called, in the report and by the exported model: probabilities or values."""

    @property
    def loss(self) -> Loss:
        """loss(targets, outputs): [b], in the type of the outputs."""

    def as_learned(self, targets: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Returns targets as a loss is given them: numbers in deviations and of this type, all else as it is."""

    def score(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns [b], whose mean over examples is `metric`."""

    def predictions(self, outputs: NDArray[Any]) -> Floats:
        """Returns what the exported model answers: probabilities [n, num_classes], or numbers in their own unit."""

    def decisions(self, predictions: Floats) -> NDArray[Any]:
        """Returns what is said of each example, [n, ...] as `targets`: a class, those from the threshold, numbers."""

    def losses(self, targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
        """Returns [n], the loss of each example as `figures` has its mean."""

    def figures(self, targets: NDArray[Any], outputs: NDArray[Any]) -> dict[str, float]:
        """Returns the figures of a whole split, computed in float64, as `tasks.target.FIGURES` names them.

        Left out are those that the split cannot tell, such as roc_auc where all are of one class. The loss has neither
        class weights nor label smoothing: in nats, or in deviations of the training split.
        """


def make_head(config: Config, manifest: ShardManifest) -> Head:
    """Returns the head of a run.

    Raises ConfigError if train.class_weights names no class of the data, or the validation split cannot tell
    train.best_metric or train.early_stopping.metric.
    """
    train, threshold = config.train, config.evaluate.threshold
    if manifest.target_kind == "regression":
        mean, std = map(np.array, manifest.target_scale)
        head: Head = _Regression("auto" if train.has_own_loss else train.loss, mean, std)
    else:
        weights = class_weights(train, manifest.label_map, manifest.splits["train"].class_counts)
        common = weights, train.label_smoothing
        match manifest.target_kind:
            case "binary":
                head = _Binary(*common, threshold)
            case "multi_label":
                head = _MultiLabel(*common, threshold)
            case _:
                head = _Multiclass(*common, len(manifest.label_map))
    _check_metrics(config, manifest)
    return head


def _check_metrics(config: Config, manifest: ShardManifest) -> None:
    counts = np.array(manifest.splits["validation"].class_counts)
    total = manifest.splits["validation"].num_examples
    one_class = not ((counts > 0) & (counts < total)).any()
    untold = {"val_roc_auc": manifest.target_kind != "regression" and one_class, "val_r2": total < 2}
    untold["val_mean_average_precision"] = not counts.any()
    stopping = config.train.early_stopping
    for field, metric in (
        ("best_metric", config.train.best_metric),
        ("early_stopping.metric", "" if stopping is None else stopping.metric),
    ):
        if untold.get(metric):
            raise ConfigError(
                f"train.{field}={metric}: cannot be told of the {total} validation example(s), which are too much of "
                "one kind; take val_loss, or give validation a larger share in data.splits"
            )


@dataclass(frozen=True)
class _Classes:
    """What the heads of classes have in common."""

    weights: list[float] | None
    smoothing: float

    @property
    def answer(self) -> str:
        return "probabilities"

    def as_learned(self, targets: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return targets


@dataclass(frozen=True)
class _Multiclass(_Classes):
    """Targets [b] int64; a logit for each class."""

    num_classes: int
    metric: str = "accuracy"

    @property
    def loss(self) -> Loss:
        return cross_entropy(self.num_classes, self.weights, self.smoothing)

    def score(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        return keras.metrics.sparse_categorical_accuracy(targets, outputs)

    def predictions(self, outputs: NDArray[Any]) -> Floats:
        return softmax(outputs.astype(np.float64), axis=1)

    def decisions(self, predictions: Floats) -> NDArray[Any]:
        return predictions.argmax(axis=1)

    def losses(self, targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
        logits = outputs.astype(np.float64)
        found: Floats = np.logaddexp.reduce(logits, axis=1) - np.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return found

    def figures(self, targets: NDArray[Any], outputs: NDArray[Any]) -> dict[str, float]:
        return {
            "accuracy": float(np.mean(outputs.argmax(axis=1) == targets)),
            "loss": float(self.losses(targets, outputs).mean()),
        }


@dataclass(frozen=True)
class _Binary(_Classes):
    """Targets [b] int64, 1 for the positive class; one logit."""

    threshold: float
    metric: str = "accuracy"

    @property
    def loss(self) -> Loss:
        losses = sigmoid_cross_entropy(None, self.smoothing)

        def loss(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
            found = losses(targets[:, tf.newaxis], outputs)
            return found if self.weights is None else found * tf.gather(tf.constant(self.weights, found.dtype), targets)

        return loss

    def score(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        return (outputs[:, 0] >= _logit(self.threshold)) == (targets == 1)

    def predictions(self, outputs: NDArray[Any]) -> Floats:
        positive = expit(outputs.astype(np.float64))
        return np.concatenate([1 - positive, positive], axis=1)

    def decisions(self, predictions: Floats) -> NDArray[Any]:
        return (predictions[:, 1] >= self.threshold).astype(np.int64)

    def losses(self, targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
        return _sigmoid_losses(targets, outputs[:, 0])

    def figures(self, targets: NDArray[Any], outputs: NDArray[Any]) -> dict[str, float]:
        from sklearn import metrics

        logits = outputs[:, 0].astype(np.float64)
        predicted = self.decisions(self.predictions(outputs))
        figures = {
            "accuracy": metrics.accuracy_score(targets, predicted),
            "loss": self.losses(targets, outputs).mean(),
            "precision": metrics.precision_score(targets, predicted, zero_division=0),
            "recall": metrics.recall_score(targets, predicted, zero_division=0),
        }
        if len(np.unique(targets)) == 2:
            figures["roc_auc"] = metrics.roc_auc_score(targets, logits)
        return {name: float(value) for name, value in figures.items()}


@dataclass(frozen=True)
class _MultiLabel(_Classes):
    """Targets [b, num_classes] uint8; a logit for each class."""

    threshold: float
    metric: str = "subset_accuracy"

    @property
    def loss(self) -> Loss:
        return sigmoid_cross_entropy(self.weights, self.smoothing)

    def score(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        return tf.reduce_all((outputs >= _logit(self.threshold)) == (targets == 1), axis=1)

    def predictions(self, outputs: NDArray[Any]) -> Floats:
        return expit(outputs.astype(np.float64))

    def decisions(self, predictions: Floats) -> NDArray[Any]:
        return (predictions >= self.threshold).astype(np.uint8)

    def losses(self, targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
        return _sigmoid_losses(targets, outputs).mean(axis=1)

    def figures(self, targets: NDArray[Any], outputs: NDArray[Any]) -> dict[str, float]:
        from sklearn import metrics

        logits = outputs.astype(np.float64)
        predicted = self.decisions(self.predictions(outputs))
        share = targets.mean(axis=0)
        figures = {
            "loss": self.losses(targets, outputs).mean(),
            "subset_accuracy": metrics.accuracy_score(targets, predicted),
            "micro_f1": metrics.f1_score(targets, predicted, average="micro", zero_division=0),
            "macro_f1": metrics.f1_score(targets, predicted, average="macro", zero_division=0),
        }
        # The means over the classes of which the split can tell.
        if (told := (share > 0) & (share < 1)).any():
            figures["roc_auc"] = np.mean(
                [metrics.roc_auc_score(targets[:, c], logits[:, c]) for c in np.flatnonzero(told)]
            )
        if (told := share > 0).any():
            precisions = [metrics.average_precision_score(targets[:, c], logits[:, c]) for c in np.flatnonzero(told)]
            figures["mean_average_precision"] = np.mean(precisions)
        return {name: float(value) for name, value in figures.items()}


@dataclass(frozen=True)
class _Regression:
    """Targets [b, num_numbers] float32 or float64, in their own unit; outputs less the mean and over the deviation."""

    kind: str
    mean: Floats
    """[num_numbers], of the training split."""
    std: Floats
    metric: str = "mae"
    answer: str = "values"

    @property
    def loss(self) -> Loss:
        losses = regression_loss(self.kind)
        return lambda targets, outputs: losses(self.as_learned(targets, outputs.dtype), outputs)

    def score(self, targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        errors = tf.abs(self.as_learned(targets, outputs.dtype) - outputs)
        return tf.reduce_mean(errors * tf.constant(self.std, outputs.dtype), axis=1)

    def predictions(self, outputs: NDArray[Any]) -> Floats:
        return outputs.astype(np.float64) * self.std + self.mean

    def decisions(self, predictions: Floats) -> NDArray[Any]:
        return predictions

    def losses(self, targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
        errors = np.abs((targets.astype(np.float64) - self.mean) / self.std - outputs.astype(np.float64))
        return np.asarray(NUMPY_LOSSES[self.kind](errors).mean(axis=1))

    def figures(self, targets: NDArray[Any], outputs: NDArray[Any]) -> dict[str, float]:
        from sklearn import metrics

        wanted, found = targets.astype(np.float64), self.predictions(outputs)
        figures = {
            "loss": self.losses(targets, outputs).mean(),
            "mae": metrics.mean_absolute_error(wanted, found),
            "rmse": metrics.root_mean_squared_error(wanted, found),
        }
        if len(wanted) > 1:
            figures["r2"] = metrics.r2_score(wanted, found)
        return {name: float(value) for name, value in figures.items()}

    def as_learned(self, targets: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        # In float64, or a time of 1.7e9 seconds would have a grain of two minutes before its mean is taken off.
        return tf.cast((tf.cast(targets, tf.float64) - self.mean) / self.std, dtype)


def _sigmoid_losses(targets: NDArray[Any], outputs: NDArray[Any]) -> Floats:
    logits = outputs.astype(np.float64)
    found: Floats = np.logaddexp(0, logits) - targets * logits
    return found


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))
