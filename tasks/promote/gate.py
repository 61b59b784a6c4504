"""The gate: whether a challenger takes the champion's place, and why."""

from collections.abc import Iterator
from typing import NamedTuple

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.gate import GateConfig
from tasks.promote.record import Champion, Decision, RegisteredModel
from tasks.target import is_lower_better

_DIGITS = 12  # to which a difference of two figures is taken: 0.3 - 0.2 is 0.1


class _Asked(NamedTuple):
    is_so: bool
    sentence: str
    """What was asked, and what was found."""


def decide(
    gate: GateConfig,
    challenger: RegisteredModel,
    report: EvalReport,
    exported: ExportManifest,
    champion: Champion | None,
) -> Decision:
    """Returns what the gate says of a challenger, by its report and export; without a champion it needs the minimum.

    What cannot be told of the examples is not so.
    """
    asked = [*_minimum(gate, report), *_budgets(gate, exported)]
    if champion is None:
        asked.append(_Asked(True, "there is no champion yet"))
    else:
        asked += [*_lead(gate, report, champion), *_slice_drops(gate, report, champion)]
    accepted = all(each.is_so for each in asked)
    return Decision(
        name=challenger.name,
        version=challenger.version,
        champion=None if champion is None else champion.version,
        accepted=accepted,
        reasons=tuple(each.sentence for each in asked if each.is_so == accepted),
        figures=report.figures,
        champion_figures={} if champion is None else champion.figures,
        p_value=None if champion is None else champion.p_value,
    )


def slice_headlines(report: EvalReport) -> dict[str, float]:
    """Returns the headline figure of each slice that is not small, by '<column>=<value>'."""
    return {
        f"{each.column}={each.value}": each.figures[report.headline]
        for each in report.slices
        if not each.is_small and report.headline in each.figures
    }


def _minimum(gate: GateConfig, report: EvalReport) -> Iterator[_Asked]:
    for figure, bound in gate.minimum.items():
        yield _reached(figure, bound, report.figures.get(figure), f"the {report.split} split")
    for figure, bound in gate.slice_minimum.items():
        for each in report.slices:
            if not each.is_small:
                yield _reached(figure, bound, each.figures.get(figure), f"{each.column}={each.value}")


def _reached(figure: str, bound: float, found: float | None, where: str) -> _Asked:
    lower = is_lower_better(figure)
    is_so = found is not None and (found <= bound if lower else found >= bound)
    told = "cannot be told" if found is None else f"is {found:.6g}"
    return _Asked(is_so, f"{figure} of {where} must be at {'most' if lower else 'least'} {bound:g}, and {told}")


def _budgets(gate: GateConfig, exported: ExportManifest) -> Iterator[_Asked]:
    if gate.max_latency_seconds is not None:
        (latency,) = (each for each in exported.latencies if each.batch_size == 1)
        seconds = latency.p95_ms / 1000
        yield _Asked(
            seconds <= gate.max_latency_seconds,
            f"a call for one example must take at most {gate.max_latency_seconds:g} s (p95), and takes {seconds:.6g} s",
        )
    if gate.max_size_bytes is not None:
        yield _Asked(
            exported.size_bytes <= gate.max_size_bytes,
            f"the model must have at most {gate.max_size_bytes} bytes, and has {exported.size_bytes}",
        )


def _lead(gate: GateConfig, report: EvalReport, champion: Champion) -> Iterator[_Asked]:
    figure = report.headline
    found, before = report.figures[figure], champion.figures[figure]
    wanted = f"be better than the champion's {before:.6g} by at least {gate.margin:g}"
    if gate.margin <= 0:
        wanted = f"not be worse than the champion's {before:.6g}" + (
            f" by over {-gate.margin:g}" if gate.margin else ""
        )
    yield _Asked(_gain(figure, found, before) >= gate.margin, f"{figure} must {wanted}, and is {found:.6g}")
    if gate.alpha is not None and gate.margin >= 0:
        yield _Asked(
            champion.p_value <= gate.alpha,
            f"chance must give such a lead with a probability of at most {gate.alpha:g}, and gives it with "
            f"{champion.p_value:.3g} ({champion.test})",
        )


def _slice_drops(gate: GateConfig, report: EvalReport, champion: Champion) -> Iterator[_Asked]:
    if gate.max_slice_drop is None:
        return
    found = slice_headlines(report)
    assert found.keys() == champion.slices.keys(), "both were judged on the same examples"
    for name, figure in found.items():
        before = champion.slices[name]
        yield _Asked(
            -_gain(report.headline, figure, before) <= gate.max_slice_drop,
            f"{report.headline} of {name} must not be worse than the champion's {before:.6g} by over "
            f"{gate.max_slice_drop:g}, and is {figure:.6g}",
        )


def _gain(figure: str, found: float, before: float) -> float:
    """Returns by how much a figure is better than before."""
    return round(before - found if is_lower_better(figure) else found - before, _DIGITS)
