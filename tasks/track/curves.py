"""Curves: the metrics of some runs by epoch, in one picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import events
from tasks.files import atomic_file
from tasks.runs import Run

# Of Okabe and Ito's palette, which colour-blind readers can tell apart; the line style says the same once more.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
LINES = ("-", "--", "-.", ":")
FIRST = (
    *("loss", "val_loss"),
    *("accuracy", "val_accuracy", "val_roc_auc"),
    *("subset_accuracy", "val_subset_accuracy", "val_macro_f1"),
    *("mae", "val_mae", "val_rmse"),
    *("learning_rate", "perf/examples_per_second"),
)
DPI = 150
MAX_POINTS_MARKED = 40


def write_curves(runs: Mapping[str, Run], file: Path) -> None:
    """Writes a PNG with a panel for each metric of an epoch, and a line in it for each run, by its label."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    histories = {label: events.history(run.events) for label, run in runs.items()}
    metrics = [metric for metric in FIRST if any(metric in history for history in histories.values())]
    num_columns = 2
    num_rows = max(1, -(-len(metrics) // num_columns))
    figure = Figure(figsize=(10, 3.2 * num_rows + 0.6), dpi=DPI, layout="constrained")
    panels = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for panel, metric in zip(panels, metrics, strict=False):
        for index, (label, history) in enumerate(histories.items()):
            _line(panel, history.get("epoch", {}), history.get(metric, {}), label, index)
        panel.set(title=metric, xlabel="epoch")
        panel.set_xlim(left=0)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[len(metrics) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    with atomic_file(file) as beside:
        figure.savefig(beside, format="png")


def _line(panel: Any, epochs: Mapping[int, float], values: Mapping[int, float], label: str, index: int) -> None:
    steps = sorted(values.keys() & epochs.keys())
    panel.plot(
        [epochs[step] for step in steps],
        [values[step] for step in steps],
        label=label,
        color=COLORS[index % len(COLORS)],
        linestyle=LINES[index % len(LINES)],
        marker="o" if len(steps) <= MAX_POINTS_MARKED else "",
        markersize=3,
    )
