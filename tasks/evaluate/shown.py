"""Shown: what a report shows of each kind of target besides its figures: a table, and plots."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn import metrics

from tasks.config import Config
from tasks.evaluate import plots
from tasks.evaluate.report import ClassFigures, NumberFigures
from tasks.prepare.manifest import ShardManifest


@dataclass(frozen=True)
class Shown:
    """Of one evaluation."""

    classes: tuple[ClassFigures, ...] = ()
    numbers: tuple[NumberFigures, ...] = ()
    plots: dict[str, Figure] = field(default_factory=dict)
    """By the name of the file, without .png."""


def show(config: Config, manifest: ShardManifest, targets: NDArray[Any], predictions: NDArray[np.float64]) -> Shown:
    """Returns what is shown of `Head.predictions` [n, ...] for the targets of a split, [n, ...]."""
    return _SHOW[manifest.target_kind](config, manifest, targets, predictions)


def _multiclass(config: Config, manifest: ShardManifest, labels: NDArray[Any], probabilities: NDArray[Any]) -> Shown:
    predicted = probabilities.argmax(axis=1)
    return Shown(_table(manifest, labels, predicted), plots=_confusion(config, manifest, labels, predicted))


def _binary(config: Config, manifest: ShardManifest, labels: NDArray[Any], probabilities: NDArray[Any]) -> Shown:
    scores, positive = probabilities[:, 1], manifest.label_map[1]
    predicted = (scores >= config.evaluate.threshold).astype(np.int64)
    shown = _confusion(config, manifest, labels, predicted)
    if len(np.unique(labels)) == 2:  # of one class there are no such curves
        shown["roc"] = plots.roc_curve(labels, scores, positive=positive)
        shown["precision_recall"] = plots.precision_recall_curve(labels, scores, positive=positive)
    return Shown(_table(manifest, labels, predicted), plots=shown)


def _multi_label(config: Config, manifest: ShardManifest, targets: NDArray[Any], probabilities: NDArray[Any]) -> Shown:
    classes = _table(manifest, targets, probabilities >= config.evaluate.threshold)
    rows = [(each.name, each.precision, each.recall, each.f1) for each in classes]
    return Shown(classes, plots={"classes": plots.class_table(rows)})


def _regression(config: Config, manifest: ShardManifest, targets: NDArray[Any], values: NDArray[Any]) -> Shown:
    wanted = targets.astype(np.float64)
    numbers = tuple(
        NumberFigures(
            name=name,
            mae=metrics.mean_absolute_error(true, found),
            rmse=metrics.root_mean_squared_error(true, found),
            r2=metrics.r2_score(true, found) if len(true) > 1 else None,
        )
        for name, true, found in zip(manifest.label_map, wanted.T, values.T, strict=True)
    )
    return Shown(numbers=numbers, plots={"errors": plots.errors(wanted, values, manifest.label_map)})


def _table(manifest: ShardManifest, targets: NDArray[Any], predicted: NDArray[Any]) -> tuple[ClassFigures, ...]:
    # A class that is never predicted, or of which the split has no example, has a precision or recall of 0.
    table = metrics.precision_recall_fscore_support(
        targets, predicted, labels=range(len(manifest.label_map)), zero_division=0
    )
    return tuple(
        ClassFigures(name=name, num_examples=support, precision=precision, recall=recall, f1=f1)
        for name, precision, recall, f1, support in zip(manifest.label_map, *table, strict=True)
    )


def _confusion(
    config: Config, manifest: ShardManifest, labels: NDArray[Any], predicted: NDArray[Any]
) -> dict[str, Figure]:
    counts = metrics.confusion_matrix(labels, predicted, labels=range(len(manifest.label_map)))
    return {"confusion_matrix": plots.confusion_matrix(counts, manifest.label_map, split=config.evaluate.split)}


_SHOW: dict[str, Callable[[Config, ShardManifest, NDArray[Any], NDArray[Any]], Shown]] = {
    "multiclass": _multiclass,
    "binary": _binary,
    "multi_label": _multi_label,
    "regression": _regression,
}
