"""The summary of a finished run, as the Prefect UI shows it."""

from typing import TYPE_CHECKING

from tasks.evaluate.report import PAGE
from tasks.track.client import artifact_url, ui_command
from tasks.track.contents import REPORT_ARTIFACTS

if TYPE_CHECKING:
    from flows.training import Outcome


def markdown(outcome: "Outcome") -> str:
    """Returns the figures of a run, its model and the link to its MLflow run."""
    trained, report = outcome.trained, outcome.report
    rows = {
        **{f"{report.split} {name}": f"{value:.4f}" for name, value in report.figures.items()},
        "examples/s": f"{trained.examples_per_second:,.0f} on {trained.num_replicas} replicas",
        "input wait": f"{trained.input_wait_fraction:.1%} of the step time",
        **({"input advice": trained.input_advice} if trained.input_advice else {}),
        "model": f"{outcome.registered.name} version {outcome.registered.version}, `{outcome.exported.directory}`",
    }
    if trained.stopped_early:
        rows["stopped early"] = trained.stopped_early
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    links = f"[MLflow run]({outcome.tracking_url}) of `{outcome.run_id}`, {_report(outcome)}"
    return f"{links}\n\n| | |\n|---|---|\n{table}\n"


def _report(outcome: "Outcome") -> str:
    """Returns the way to the report: its page on the MLflow server, or its file where there is no server."""
    if ui_command(outcome.tracking_uri):
        return f"report `{outcome.report.directory / PAGE}`"
    return f"[report]({artifact_url(outcome.tracking_url, f'{REPORT_ARTIFACTS}/{PAGE}')})"
