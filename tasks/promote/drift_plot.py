"""The plot of a drift: its figures by feature, the largest on top."""

from pathlib import Path

from tasks.files import atomic_file
from tasks.promote.record import Drift

MAX_FEATURES = 30
LITTLE, MUCH = 0.1, 0.25  # psi from which a drift is worth a look, and a new model (Siddiqi, 2006)
BLUE = "#0072B2"
DPI = 150


def write_plot(drift: Drift, file: Path) -> None:
    """Writes a PNG with a bar for each of the MAX_FEATURES features with the largest psi, and beside it one for js."""
    from matplotlib.figure import Figure

    shown = sorted(drift.features, key=lambda name: (drift.features[name].psi, name))[-MAX_FEATURES:]
    labels = [name if len(name) <= 30 else f"{name[:29]}…" for name in shown]
    figure = Figure(figsize=(10, 1.6 + 0.28 * len(shown)), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(range(len(shown)), [drift.features[name].psi for name in shown], color=BLUE)
    right.barh(range(len(shown)), [drift.features[name].js for name in shown], color=BLUE)
    for bound, style, words in ((LITTLE, ":", "little below"), (MUCH, "--", "much from here on")):
        left.axvline(bound, color="#555555", linestyle=style, linewidth=1.2, label=f"{bound:g}: {words}")
    left.set(xlabel="population stability index", yticks=range(len(shown)))
    left.set_yticklabels(labels, parse_math=False)
    left.set_xlim(left=0)
    right.set(xlabel="Jensen-Shannon distance", xlim=(0, 1))
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    num_others = len(drift.features) - len(shown)
    figure.suptitle(
        f"training data against those of {drift.champion}" + (f"; {num_others} others are less" if num_others else "")
    )
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    with atomic_file(file) as beside:
        figure.savefig(beside, format="png")
