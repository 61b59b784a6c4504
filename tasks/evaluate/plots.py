"""Plots of a report, made for colour-blind readers too; runs in a worker process."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.metrics import ConfusionMatrixDisplay

# Of Okabe and Ito's palette; the line style says the same once more.
TRAINING: dict[str, Any] = {
    "label": "training (mean during the epoch)",
    "color": "#E69F00",
    "linestyle": "--",
    "marker": "o",
}
VALIDATION: dict[str, Any] = {"label": "validation (at its end)", "color": "#0072B2", "linestyle": "-", "marker": "s"}
BEST: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1.2}
MAX_CLASSES_WRITTEN_OUT = 25  # with more, numbers and names no longer fit
MAX_POINTS_MARKED = 40
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


def learning_curves(history: Mapping[str, Mapping[int, float]], *, best_step: int) -> Figure:
    """Returns the plot of loss and accuracy by epoch of `events.history`, the best step marked."""
    figure = Figure(figsize=(10, 4), dpi=DPI, layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    for axes, name, label in ((loss, "loss", "loss (nats)"), (accuracy, "accuracy", "accuracy (share)")):
        for metric, style in ((name, TRAINING), (f"val_{name}", VALIDATION)):
            _curve(axes, history["epoch"], history[metric], style)
        if best_step in history["epoch"]:  # a machine's crash may take an event and leave the checkpoint
            best_epoch = history["epoch"][best_step]
            axes.axvline(best_epoch, **BEST, label=f"best checkpoint: step {best_step}, epoch {best_epoch:g}")
        axes.set(xlabel="epoch", ylabel=label)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    loss.set_ylim(bottom=0)
    accuracy.set_ylim(top=1)
    handles, labels = loss.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _curve(axes: Axes, epochs: Mapping[int, float], values: Mapping[int, float], style: dict[str, Any]) -> None:
    steps = sorted(values)
    axes.plot(
        [epochs[step] for step in steps],
        [values[step] for step in steps],
        **(style if len(steps) <= MAX_POINTS_MARKED else {**style, "marker": ""}),
        markersize=4,
        clip_on=False,  # a point on the frame is a whole point
    )
