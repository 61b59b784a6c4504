"""The summary of a finished run, as the Prefect UI shows it."""

from typing import TYPE_CHECKING

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
    return f"[MLflow run]({outcome.tracking_url}) of `{outcome.run_id}`\n\n| | |\n|---|---|\n{table}\n"
