"""The listing: the runs of a workspace with what they reached."""

import math
from pathlib import Path

from tasks import events
from tasks.files import lock
from tasks.runs import CHOOSE_LOCK, Run, RunState, find_run, is_free, list_runs
from tasks.target import is_lower_better
from tasks.track.comparison import find_report


class RunSummary(RunState):
    """A run and its most telling figures; None: not reached."""

    best_metric: str
    """train.best_metric of its config."""
    best_value: float | None
    """The best so far."""
    eval_metric: str
    """The first figure of the report; empty without one."""
    eval_value: float | None
    """Its value, of the best checkpoint on the evaluated split."""
    examples_per_second: float | None


def list_summaries(
    workspace: Path, *, name: str | None = None, status: str | None = None, limit: int | None = None
) -> list[RunSummary]:
    """Returns the runs of a workspace, newest first: those of a config's name and of a status, at most `limit`.

    A run whose process died is `killed`, whatever its state still says.
    """
    found: list[RunSummary] = []
    for state in list_runs(workspace):
        if limit is not None and len(found) == limit:
            break
        if name is not None and state.name != name:
            continue
        now = _status(workspace, state)
        if status is None or now == status:
            found.append(_summary(find_run(workspace, state.id), state.model_copy(update={"status": now})))
    return found


def _status(workspace: Path, state: RunState) -> str:
    if state.status != "running":
        return state.status
    with lock(workspace / "runs" / CHOOSE_LOCK):  # or whoever takes the run up meanwhile would find it held
        return "killed" if is_free(workspace / "runs" / state.id) else "running"


def _summary(run: Run, state: RunState) -> RunSummary:
    metric, history, report = run.config.train.best_metric, events.history(run.events), find_report(run)
    values, rates = history.get(metric, {}), history.get("perf/examples_per_second", {})
    best = min if is_lower_better(metric) else max
    return RunSummary(
        **state.model_dump(),
        best_metric=metric,
        best_value=best((value for value in values.values() if math.isfinite(value)), default=None),
        eval_metric="" if report is None else report.headline,
        eval_value=None if report is None else report.figures[report.headline],
        examples_per_second=rates[max(rates)] if rates else None,
    )
