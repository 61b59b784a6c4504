"""Plots of a report, made for colour-blind readers too; runs in a worker process."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import ConfusionMatrixDisplay, PrecisionRecallDisplay, RocCurveDisplay

from tasks.evaluate.report import Calibration
from tasks.target import is_lower_better

# Of Okabe and Ito's palette; the line style says the same once more.
TRAINING: dict[str, Any] = {
    "label": "training (mean during the epoch)",
    "color": "#E69F00",
    "linestyle": "--",
    "marker": "o",
}
VALIDATION: dict[str, Any] = {"label": "validation (at its end)", "color": "#0072B2", "linestyle": "-", "marker": "s"}
BEST: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1.2}
BLUE: dict[str, Any] = {"color": "#0072B2"}
MAX_NUMBERS = 6  # of a regression, with a row of plots each
NUM_BINS = 50
MAX_CLASSES_WRITTEN_OUT = 25  # with more, numbers and names no longer fit
MAX_POINTS_MARKED = 40
# Of classes, as many as are shown.
CURVES: list[dict[str, Any]] = [
    {"color": color, "linestyle": style, "linewidth": 1.2}
    for style in ("-", "--")
    for color in ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
]
MAX_AVERAGED = 100  # classes whose curves go into the mean: of thousands they take minutes
DPI = 150


def confusion_matrix(counts: NDArray[np.int64], label_map: Sequence[str], *, split: str) -> Figure:
    """Returns the plot of [num_classes, num_classes] `counts`, rows the true classes.

    A cell's number is its count, its shade the share of the true class, so that rare classes are seen as well.
    """
    num_classes = len(label_map)
    written_out = num_classes <= MAX_CLASSES_WRITTEN_OUT
    side = float(np.clip(0.45 * num_classes, 4, 10))
    figure = Figure(figsize=(side + 1.6, side + 0.8), dpi=DPI, layout="constrained")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    display = ConfusionMatrixDisplay(shares, display_labels=label_map)
    display.plot(
        ax=figure.subplots(),
        cmap="Blues",
        include_values=written_out,
        xticks_rotation="vertical" if max(map(len, label_map)) > 3 else "horizontal",
        im_kw={"vmin": 0, "vmax": 1},
        text_kw={"fontsize": 9},
        colorbar=False,
    )
    if written_out:
        for cell, count in zip(display.text_.ravel(), counts.ravel(), strict=True):
            cell.set_text(str(count) if count else "")
    else:
        display.ax_.set(xticks=[], yticks=[])
    figure.colorbar(display.im_, ax=display.ax_, label="share of the true class", shrink=0.8)
    display.ax_.set(
        title=f"{split}: {np.trace(counts):,} of {counts.sum():,} examples right",
        xlabel="predicted class",
        ylabel="true class",
    )
    return figure


def learning_curves(history: Mapping[str, Mapping[int, float]], *, metric: str, best_step: int) -> Figure:
    """Returns the plot of loss and a metric by epoch of `events.history`, the best step marked."""
    figure = Figure(figsize=(10, 4), dpi=DPI, layout="constrained")
    loss, other = figure.subplots(1, 2)
    is_share = not is_lower_better(metric)
    labels_of = {"loss": "loss (nats)" if is_share else "loss", metric: f"{metric} (share)" if is_share else metric}
    for axes, name in ((loss, "loss"), (other, metric)):
        label = labels_of[name]
        for each, style in ((name, TRAINING), (f"val_{name}", VALIDATION)):
            _curve(axes, history["epoch"], history[each], style)
        if best_step in history["epoch"]:  # a machine's crash may take an event and leave the checkpoint
            best_epoch = history["epoch"][best_step]
            axes.axvline(best_epoch, **BEST, label=f"best checkpoint: step {best_step}, epoch {best_epoch:g}")
        axes.set(xlabel="epoch", ylabel=label)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    loss.set_ylim(bottom=0)
    other.set_ylim(**{"top": 1} if is_share else {"bottom": 0})
    handles, labels = loss.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def roc_curve(labels: NDArray[np.int64], scores: NDArray[np.float64], *, positive: str) -> Figure:
    """Returns the plot of [n] labels, 1 for the positive class, and [n] scores that are the higher the surer."""
    return _trade_off(
        RocCurveDisplay,
        labels,
        scores,
        positive=positive,
        x="false positives (share of the others)",
        y=f"true positives (share of {positive})",
    )


def precision_recall_curve(labels: NDArray[np.int64], scores: NDArray[np.float64], *, positive: str) -> Figure:
    """Returns the plot of what `roc_curve` takes."""
    return _trade_off(
        PrecisionRecallDisplay,
        labels,
        scores,
        positive=positive,
        x=f"recall (share of {positive} that is found)",
        y=f"precision (share of what is called {positive})",
    )


def one_vs_rest(
    kind: Literal["roc", "precision_recall"],
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    label_map: Sequence[str],
) -> Figure:
    """Returns the curves of several classes, each against the others, of [n] labels and [n, num_classes] probabilities.

    Shown are the worst classes, as many as there are CURVES, and the mean of all (macro), at equal false positives or
    recall, by linear interpolation; of the most frequent MAX_AVERAGED if there are more. Classes that the split lacks
    are left out.
    """
    counts = np.bincount(labels, minlength=len(label_map))
    classes = [each for each in np.argsort(-counts, kind="stable")[:MAX_AVERAGED] if 0 < counts[each] < len(labels)]
    grid = np.linspace(0, 1, 501)
    found = []
    for each in classes:
        wanted, scores = labels == each, probabilities[:, each]
        if kind == "roc":
            x, y, _ = metrics.roc_curve(wanted, scores)
            score = metrics.auc(x, y)
        else:
            y, x, _ = metrics.precision_recall_curve(wanted, scores)
            x, y, score = x[::-1], y[::-1], metrics.average_precision_score(wanted, scores)
        found.append((float(score), label_map[each], x, y))
    name = "AUC" if kind == "roc" else "AP"
    figure = Figure(figsize=(5, 6), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    worst = sorted(found, key=lambda each: each[:2])
    for style, (score, label, x, y) in zip(CURVES, worst, strict=False):
        axes.plot(x, y, **style, label=f"{label}: {name} {score:.3f}")
    if found:
        mean = np.mean([np.interp(grid, x, y) for *_, x, y in found], axis=0)
        score = np.mean([each[0] for each in found])
        axes.plot(grid, mean, color="black", linewidth=2.5, label=f"mean of {len(found)} classes: {name} {score:.3f}")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    if kind == "roc":
        _finish(axes, x="false positives (share of the others)", y="true positives (share of the class)")
    else:
        _finish(axes, x="recall (share of the class that is found)", y="precision (share of what is called so)")
    return figure


def reliability(calibration: Calibration) -> Figure:
    """Returns the plot of accuracy by confidence, and below it how many predictions have it."""
    bins = calibration.bins
    figure = Figure(figsize=(5, 6), dpi=DPI, layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    display = CalibrationDisplay(
        np.array([each.accuracy for each in bins]), np.array([each.mean_confidence for each in bins]), None
    )
    display.plot(ax=upper, name=f"ECE {calibration.ece:.4f}", **BLUE)
    _finish(upper, x="", y="share that is right")
    lower.bar(
        [each.low for each in bins],
        [each.num_examples for each in bins],
        width=[each.high - each.low for each in bins],
        align="edge",
        edgecolor="white",
        **BLUE,
    )
    _finish(lower, x="confidence (mean of the bin above)", y="predictions")
    return figure


def _trade_off(
    kind: Any, labels: NDArray[np.int64], scores: NDArray[np.float64], *, positive: str, x: str, y: str
) -> Figure:
    """Returns the plot of one of scikit-learn's displays over all thresholds."""
    figure = Figure(figsize=(5, 5), dpi=DPI, layout="constrained")
    display = kind.from_predictions(labels, scores, ax=figure.subplots(), name=positive, plot_chance_level=True)
    display.line_.set(**BLUE)
    _finish(display.ax_, x=x, y=y)
    return figure


def class_table(rows: Sequence[tuple[str, float, float, float]]) -> Figure:
    """Returns the plot of name, precision, recall and f1 of each class, those of the lowest f1 first."""
    rows = sorted(rows, key=lambda row: row[3])[:MAX_CLASSES_WRITTEN_OUT]
    figure = Figure(figsize=(7, 1.6 + 0.3 * len(rows)), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))
    for index, (label, marker, color) in enumerate(
        (("precision", "o", "#0072B2"), ("recall", "s", "#E69F00"), ("f1", "D", "#009E73")), start=1
    ):
        axes.plot([row[index] for row in rows], places, linestyle="", marker=marker, color=color, label=label)
    axes.set_yticks(places, [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(-0.02, 1.02)
    _finish(axes, x="share", y="")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def errors(wanted: NDArray[np.float64], predicted: NDArray[np.float64], names: Sequence[str]) -> Figure:
    """Returns the histograms of predicted less true values of two [n, num_numbers], and each against the other.

    A row for each of the first MAX_NUMBERS numbers.
    """
    names = names[:MAX_NUMBERS]
    figure = Figure(figsize=(10, 4 * len(names)), dpi=DPI, layout="constrained")
    for place, (name, (histogram, scatter)) in enumerate(
        zip(names, figure.subplots(len(names), 2, squeeze=False), strict=True)
    ):
        true, found = wanted[:, place], predicted[:, place]
        histogram.hist(found - true, bins=NUM_BINS, range=_bounds(found - true), color=BLUE["color"])
        histogram.axvline(0, **BEST)
        _finish(histogram, x=f"error of {name}: predicted less true", y="examples")
        scatter.scatter(true, found, s=8, alpha=0.4, linewidths=0, **BLUE)
        scatter.axline((float(true.mean()), float(true.mean())), slope=1, **BEST)
        _finish(scatter, x=f"true {name}", y=f"predicted {name}")
    return figure


def _bounds(values: NDArray[np.float64]) -> tuple[float, float]:
    """Returns from where to where NUM_BINS bins go: values that are equal but for rounding cannot be cut into them."""
    low, high = float(values.min()), float(values.max())
    largest = max(abs(low), abs(high))
    margin = 0.0 if high - low > 1e-9 * largest else 0.01 * largest or 0.5
    return low - margin, high + margin


def _finish(axes: Axes, *, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _curve(axes: Axes, epochs: Mapping[int, float], values: Mapping[int, float], style: dict[str, Any]) -> None:
    steps = sorted(values)
    axes.plot(
        [epochs[step] for step in steps],
        [values[step] for step in steps],
        **(style if len(steps) <= MAX_POINTS_MARKED else {**style, "marker": ""}),
        markersize=4,
        clip_on=False,  # a point on the frame is a whole point
    )
