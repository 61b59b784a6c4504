"""Plot: the rates on one replica, two and more beside what twice as many would give at best, and the all-reduces."""

from pathlib import Path

from tasks.bench.scaling_report import ScalingReport
from tasks.files import atomic_file

COLORS = {"weak": "#0072B2", "strong": "#E69F00"}  # of Okabe and Ito's palette
DPI = 150


def write_scaling_plot(report: ScalingReport, file: Path) -> None:
    """Writes a PNG of three panels: rates, efficiency, seconds of a sum of the gradients."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), dpi=DPI, layout="constrained")
    rates, efficiency, sums = figure.subplots(1, 3)
    for mode, color in COLORS.items():
        points = [point for point in report.points if point.mode == mode]
        counts = [point.num_replicas for point in points]
        medians = [point.examples_per_second for point in points]
        spread = [
            [point.examples_per_second - point.min for point in points],
            [point.max - point.examples_per_second for point in points],
        ]
        rates.errorbar(counts, medians, yerr=spread, color=color, marker="o", capsize=3, label=mode)
        rates.plot(counts, [medians[0] * count for count in counts], color=color, linestyle=":", linewidth=1)
        efficiency.plot(counts, [100 * point.efficiency for point in points], color=color, marker="o", label=mode)
    counts = sorted({point.num_replicas for point in report.points})
    for panel, title in ((rates, "examples/s (dotted: linear)"), (efficiency, "efficiency, %")):
        panel.set_title(f"{report.name}: {title}", fontsize=10)
        panel.set(xlabel="replicas", xticks=counts)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    done = [reduction for reduction in report.reductions if not reduction.failed]
    bars = sums.barh([each.all_reduce for each in done], [1000 * each.seconds for each in done], color="#999999")
    sums.bar_label(bars, [f" {1000 * each.seconds:.2g}" for each in done], fontsize=8)
    sums.set_title("sum of the gradients, ms", fontsize=10)
    sums.margins(x=0.2)
    for panel in (rates, efficiency, sums):
        panel.spines[["top", "right"]].set_visible(False)
    with atomic_file(file) as beside:
        figure.savefig(beside, format="png")
