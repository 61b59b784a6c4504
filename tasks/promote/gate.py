"""The gate: whether a challenger takes the champion's place, and why."""

from collections.abc import Iterator
from typing import NamedTuple

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.gate import GateConfig
from tasks.promote.record import Champion, Decision, RegisteredModel
from tasks.target import is_lower_better

_DIGITS = 12  # to which a difference of two figures is taken: 0.3 - 0.2 is 0.1


class _Criterion(NamedTuple):
    is_met: bool
    sentence: str
    """What is asked, and what was found."""


def decide(
    gate: GateConfig,
    challenger: RegisteredModel,
    report: EvalReport,
    exported: ExportManifest,
    champion: Champion | None,
) -> Decision:
    """Returns what the gate says of a challenger, by its report and export; without a champion it needs the minimum.

    What cannot be told is not met.
    """
    asked = [*_minimum(gate, report), *_budgets(gate, exported)]
    if champion is None:
        asked.append(_Criterion(True, "there is no champion yet"))
    else:
        asked += [*_lead(gate, report, champion), *_slice_drops(gate, report, champion)]
    accepted = all(each.is_met for each in asked)
    return Decision(
        name=challenger.name,
        version=challenger.version,
        champion=None if champion is None else champion.version,
        accepted=accepted,
        reasons=tuple(each.sentence for each in asked if each.is_met == accepted),
        figures=report.figures,
        champion_figures={} if champion is None else champion.figures,
        p_value=None if champion is None else champion.p_value,
    )


def unopposed(champion: RegisteredModel, report: EvalReport) -> Decision:
    """Returns the decision on what is the champion already, as it was made by hand, say: there is none to compare."""
    return Decision(
        name=champion.name,
        version=champion.version,
        champion=champion.version,
        accepted=True,
        reasons=("it is the champion already",),
        figures=report.figures,
        champion_figures={},
        p_value=None,
    )


def slice_headlines(report: EvalReport) -> dict[str, float]:
    """Returns the headline figure of each slice that is not small, by '<column>=<value>'."""
    return {
        f"{each.column}={each.value}": each.figures[report.headline]
        for each in report.slices
        if not each.is_small and report.headline in each.figures
    }


def _minimum(gate: GateConfig, report: EvalReport) -> Iterator[_Criterion]:
    for figure, bound in gate.minimum.items():
        yield _bound(figure, bound, report.figures.get(figure), f"the {report.split} split")
    for figure, bound in gate.slice_minimum.items():
        for each in report.slices:
            if not each.is_small:
                yield _bound(figure, bound, each.figures.get(figure), f"{each.column}={each.value}")


def _bound(figure: str, bound: float, found: float | None, where: str) -> _Criterion:
    lower = is_lower_better(figure)
    is_met = found is not None and (found <= bound if lower else found >= bound)
    told = "cannot be told" if found is None else f"is {found:.6g}"
    return _Criterion(is_met, f"{figure} of {where} must be at {'most' if lower else 'least'} {bound:g}, and {told}")


def _budgets(gate: GateConfig, exported: ExportManifest) -> Iterator[_Criterion]:
    if gate.max_latency_seconds is not None:
        latency = next((each for each in exported.latencies if each.batch_size == 1), None)
        seconds = None if latency is None else latency.p95_ms / 1000
        found = "that was not measured" if seconds is None else f"takes {seconds:.6g} s"
        yield _Criterion(
            seconds is not None and seconds <= gate.max_latency_seconds,
            f"a call for one example must take at most {gate.max_latency_seconds:g} s (p95), and {found}",
        )
    if gate.max_size_bytes is not None:
        yield _Criterion(
            exported.size_bytes <= gate.max_size_bytes,
            f"the model must have at most {gate.max_size_bytes} bytes, and has {exported.size_bytes}",
        )


def _lead(gate: GateConfig, report: EvalReport, champion: Champion) -> Iterator[_Criterion]:
    figure = report.headline
    found, before = report.figures[figure], champion.figures[figure]
    wanted = f"be better than the champion's {before:.6g} by at least {gate.margin:g}"
    if gate.margin <= 0:
        wanted = f"not be worse than the champion's {before:.6g}" + (
            f" by over {-gate.margin:g}" if gate.margin else ""
        )
    yield _Criterion(_gain(figure, found, before) >= gate.margin, f"{figure} must {wanted}, and is {found:.6g}")
    if gate.alpha is not None and gate.margin >= 0:
        yield _Criterion(
            champion.p_value <= gate.alpha,
            f"chance must give such a lead with a probability of at most {gate.alpha:g}, and gives it with "
            f"{champion.p_value:.3g} ({champion.test})",
        )


def _slice_drops(gate: GateConfig, report: EvalReport, champion: Champion) -> Iterator[_Criterion]:
    if gate.max_slice_drop is None:
        return
    found = slice_headlines(report)
    assert found.keys() == champion.slices.keys(), "both were judged on the same examples"
    for name, figure in found.items():
        before = champion.slices[name]
        yield _Criterion(
            -_gain(report.headline, figure, before) <= gate.max_slice_drop,
            f"{report.headline} of {name} must not be worse than the champion's {before:.6g} by over "
            f"{gate.max_slice_drop:g}, and is {figure:.6g}",
        )


def _gain(figure: str, found: float, before: float) -> float:
    """Returns by how much a figure is better than before."""
    return round(before - found if is_lower_better(figure) else found - before, _DIGITS)
