"""Plot: the examples that each side of the feed bench delivers in a second, and what the stages of ours cost."""

from pathlib import Path
from typing import Any

from tasks.bench.report import FeedReport, Row
from tasks.bench.runner import OURS
from tasks.files import atomic_file

RATE, SECONDS = "examples_per_second_", "cpu_seconds_"
STAGE = "stage "
BLUE, GREY = "#0072B2", "#999999"  # of Okabe and Ito's palette; ours stands out in print too
DPI = 150


def write_plot(report: FeedReport, file: Path) -> None:
    """Writes a PNG with a row of panels for each data set: the rate of each side, the CPU-seconds of each stage."""
    from matplotlib.figure import Figure

    names = [row.metric.removeprefix(RATE) for row in report.rows if row.metric.startswith(RATE) and row.side == OURS]
    figure = Figure(figsize=(10, 3.4 * len(names)), dpi=DPI, layout="constrained")
    for name, (rates, stages) in zip(names, figure.subplots(len(names), 2, squeeze=False), strict=True):
        sides = [row for row in report.rows if row.metric == RATE + name]
        _bars(rates, sides, title=f"{name}: examples/s on {report.host.cores} core(s)")
        costs = [row for row in report.rows if row.metric == SECONDS + name and row.side.startswith(STAGE)]
        _bars(stages, costs, title=f"{name}: CPU-seconds of a turn, by stage")
        rates.set_xscale("log")  # between a rival and a bound there may be a factor of a thousand
    with atomic_file(file) as beside:
        figure.savefig(beside, format="png")


def _bars(panel: Any, rows: list[Row], *, title: str) -> None:
    labels = [row.side.removeprefix(STAGE) for row in rows]
    medians = [row.median for row in rows]
    spread = [[row.median - row.min for row in rows], [row.max - row.median for row in rows]]
    colors = [BLUE if row.side.startswith(OURS) or row.side == f"{STAGE}whole" else GREY for row in rows]
    bars = panel.barh(labels, medians, xerr=spread, color=colors, ecolor="#555555")
    panel.bar_label(bars, [f" {value:,.0f}" if value >= 100 else f" {value:.2g}" for value in medians], fontsize=8)
    panel.set_title(title, fontsize=10)
    panel.invert_yaxis()
    panel.margins(x=0.2)
    panel.spines[["top", "right"]].set_visible(False)
