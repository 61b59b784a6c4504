"""Shown: what a report shows of each kind of target besides its figures: a table, and plots."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn import metrics

from tasks.config import Config
from tasks.evaluate import plots
from tasks.evaluate.calibration import calibration_of, confidences
from tasks.evaluate.judged import Judged
from tasks.evaluate.report import Calibration, ClassFigures, NumberFigures
from tasks.prepare.manifest import ShardManifest


@dataclass(frozen=True)
class Shown:
    """Of one evaluation."""

    classes: tuple[ClassFigures, ...] = ()
    numbers: tuple[NumberFigures, ...] = ()
    calibration: Calibration | None = None
    plots: dict[str, Figure] = field(default_factory=dict)
    """By the name of the file, without .png."""


def show(config: Config, manifest: ShardManifest, judged: Judged) -> Shown:
    """Returns what is shown of the examples of a split."""
    if manifest.target_kind == "regression":
        return _regression(manifest, judged)
    calibration = calibration_of(*confidences(manifest.target_kind, judged.targets, judged.predictions))
    classes = _table(manifest, judged.targets, judged.decisions)
    match manifest.target_kind:
        case "multiclass":
            shown = _multiclass(config, manifest, judged)
        case "binary":
            shown = _binary(config, manifest, judged)
        case _:
            rows = [(each.name, each.precision, each.recall, each.f1) for each in classes]
            shown = {"classes": plots.class_table(rows)}
    return Shown(classes, calibration=calibration, plots=shown | {"calibration": plots.reliability(calibration)})


def _regression(manifest: ShardManifest, judged: Judged) -> Shown:
    wanted, values = judged.targets.astype(np.float64), judged.predictions
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


def _multiclass(config: Config, manifest: ShardManifest, judged: Judged) -> dict[str, Figure]:
    return _confusion(config, manifest, judged) | {
        "roc": plots.one_vs_rest("roc", judged.targets, judged.predictions, manifest.label_map),
        "precision_recall": plots.one_vs_rest(
            "precision_recall", judged.targets, judged.predictions, manifest.label_map
        ),
    }


def _binary(config: Config, manifest: ShardManifest, judged: Judged) -> dict[str, Figure]:
    labels, scores, positive = judged.targets, judged.predictions[:, 1], manifest.label_map[1]
    shown = _confusion(config, manifest, judged)
    if len(np.unique(labels)) == 2:  # of one class there are no such curves
        shown["roc"] = plots.roc_curve(labels, scores, positive=positive)
        shown["precision_recall"] = plots.precision_recall_curve(labels, scores, positive=positive)
    return shown


def _confusion(config: Config, manifest: ShardManifest, judged: Judged) -> dict[str, Figure]:
    counts = metrics.confusion_matrix(judged.targets, judged.decisions, labels=range(len(manifest.label_map)))
    return {"confusion_matrix": plots.confusion_matrix(counts, manifest.label_map, split=config.evaluate.split)}
