"""Comparison: in what runs differ, read from their own directories."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from tasks import events
from tasks.errors import ConfigError
from tasks.evaluate.report import REPORT, EvalReport
from tasks.files import Record, is_completed
from tasks.runs import Run, RunState
from tasks.target import is_lower_better
from tasks.track import client
from tasks.track.contents import data_counts, find_manifest, find_trained
from tasks.track.params import flatten
from tasks.track.provenance import find_provenance
from tasks.track.tracked import read_tracked

_Group = dict[str, JsonValue]
_History = Mapping[str, Mapping[int, float]]


class Comparison(Record):
    """Some runs side by side."""

    runs: tuple[RunState, ...]
    differences: dict[str, dict[str, tuple[JsonValue, ...]]]
    """Of params, data, code, environment and figures: {name: value of each run}, if not all are equal; None: unknown.

    Figures are named as in MLflow: the last value of each metric, and what training and evaluation handed on.
    """
    num_equal: dict[str, int]
    """How many names of each group are left out, because their value is the same in all runs."""
    mlflow_url: str
    """MLflow's compare page; empty unless all runs are tracked at one place."""
    ui_command: str
    """What opens MLflow's UI first; empty for a server."""


@dataclass(frozen=True)
class Until:
    """A value of a metric to be reached: a loss or error from above, all else from below."""

    metric: str
    value: float

    @classmethod
    def parse(cls, text: str) -> "Until":
        """Returns the target of 'val_accuracy=0.95'; raises ConfigError."""
        metric, _, value = text.partition("=")
        try:
            return cls(metric, float(value))
        except ValueError:
            raise ConfigError(
                f"--until {text!r}: must be a metric and a value to reach, such as val_accuracy=0.95"
            ) from None

    def __str__(self) -> str:
        return f"{self.metric}={self.value:g}"

    def step(self, history: _History) -> int | None:
        """Returns the first step at which it was reached."""
        sign = -1 if is_lower_better(self.metric) else 1
        reached = (step for step, value in history.get(self.metric, {}).items() if sign * value >= sign * self.value)
        return min(reached, default=None)


def compare_runs(runs: Sequence[Run], until: Until | None = None) -> Comparison:
    """Returns in what the runs differ; with `until` also after how many epochs and seconds each reached it.

    The seconds are those of the steps alone, examples over examples/s, as perf/* counts them: compilation, validation,
    checkpoints, waits for a device and interruptions are left out. Needs no server. Raises ConfigError if no run has
    the metric of `until`.
    """
    if until is not None:
        metrics = {metric for run in runs for metric in events.history(run.events)}
        if until.metric not in metrics:
            known = ", ".join(sorted(metrics)) or "none"
            raise ConfigError(f"--until {until}: no such metric in these runs; they have: {known}")
    described = [_describe(run, until) for run in runs]
    differences: dict[str, dict[str, tuple[JsonValue, ...]]] = {}
    num_equal = {}
    for group in described[0]:
        names = dict.fromkeys(name for each in described for name in each[group])
        rows = {name: tuple(each[group].get(name) for each in described) for name in names}
        known_rows = {name: values for name, values in rows.items() if any(value is not None for value in values)}
        differences[group] = {
            name: values for name, values in known_rows.items() if any(value != values[0] for value in values)
        }
        num_equal[group] = len(known_rows) - len(differences[group])
    url, opener = _mlflow_page(runs)
    return Comparison(
        runs=tuple(run.state() for run in runs),
        differences=differences,
        num_equal=num_equal,
        mlflow_url=url,
        ui_command=opener,
    )


def last_figures(run: Run) -> dict[str, float]:
    """Returns the last value of each metric of a run, by its name in MLflow; of a part that was not reached none."""
    figures = {name: values[max(values)] for name, values in events.history(run.events).items()}
    trained, report = find_trained(run), find_report(run)
    if trained is not None:  # a stage that is carried out alone writes no event of its end
        figures |= {"best_step": trained.best_step, f"best_{run.config.train.best_metric}": trained.best_value}
        figures["num_parameters"] = trained.num_parameters
    if report is not None:
        figures |= {f"eval/{name}": value for name, value in report.metrics.items()}
    return figures


def find_report(run: Run) -> EvalReport | None:
    """Returns the report of a run, if it was evaluated."""
    return EvalReport.read(run.report / REPORT) if is_completed(run.report) else None


def _describe(run: Run, until: Until | None) -> dict[str, _Group]:
    state, provenance, trained = run.state(), find_provenance(run), find_trained(run)
    figures = last_figures(run)
    counts = {name.removeprefix("data/"): value for name, value in figures.items() if name.startswith("data/")}
    manifest = find_manifest(run)
    data: _Group = {"data_digest": state.data_digest, **counts}
    if manifest is not None:
        data |= {"source_digest": manifest.source_digest, **data_counts(manifest)}
    code: _Group = {}
    environment: _Group = {"host": state.host}
    if provenance is not None:
        code = {"code_digest": provenance.code_digest, "pipeline_digest": provenance.pipeline_digest or None}
        code |= {"commit": provenance.commit, "dirty": provenance.dirty}
        environment = {"host": provenance.host, "python": provenance.python, "platform": provenance.platform}
        environment |= {f"package {name}": version for name, version in provenance.packages.items()}
    if trained is not None:
        environment |= {"num_replicas": trained.num_replicas, "devices": ", ".join(trained.devices)}
    shown: _Group = {
        name: value if math.isfinite(value) else str(value)
        for name, value in figures.items()
        if not name.startswith("data/")
    }
    if until is not None:
        num_train = data.get("num_examples_train")
        shown |= _time_to(until, events.history(run.events), num_train if isinstance(num_train, int | float) else None)
    return {
        "params": dict(flatten(run.config.model_dump(mode="json"))),
        "data": data,
        "code": code,
        "environment": environment,
        "figures": shown,
    }


def _time_to(until: Until, history: _History, num_train: float | None) -> _Group:
    step = until.step(history)
    epoch = history.get("epoch", {}).get(step) if step is not None else None
    rate = history.get("perf/examples_per_second", {}).get(step) if step is not None else None
    seconds = epoch * num_train / rate if epoch and num_train and rate else None
    return {f"epochs until {until}": epoch, f"seconds until {until}": seconds}


def _mlflow_page(runs: Sequence[Run]) -> tuple[str, str]:
    """Returns the link of MLflow's compare page and what opens its UI; empty if not all runs are there."""
    tracked = [read_tracked(run) for run in runs]
    if not all(each.experiment_id for each in tracked) or len({each.uri for each in tracked}) > 1:
        return "", ""
    uri = tracked[0].uri
    experiments = dict.fromkeys(each.experiment_id for each in tracked)
    return client.compare_url(uri, [*experiments], [each.mlflow_run_id for each in tracked]), client.ui_command(uri)
