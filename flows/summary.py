"""The summary of a finished run, as the Prefect UI shows it."""

import base64
import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from flows.artifacts import artifact_key, create_artifact
from tasks.evaluate.report import PAGE
from tasks.promote.record import DRIFT_PLOT
from tasks.track.client import artifact_url, ui_command
from tasks.track.contents import REPORT_ARTIFACTS

if TYPE_CHECKING:
    from flows.training import Outcome


MAX_PLOTS = 4  # of a report, about 15 KB each in Prefect's database
MAX_TRIES, TIMEOUT_SECONDS = 3, 10.0  # by its own settings Prefect tries for more than a minute, then raises

logger = logging.getLogger("millstream")


def publish(outcome: "Outcome", *, name: str) -> None:
    """Shows the summary with the flow run in the Prefect UI; without a server there is a warning in its place."""
    try:
        key, told = artifact_key(name), markdown(outcome)
        create_artifact("markdown", key, told, max_tries=MAX_TRIES, timeout_seconds=TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever becomes of the summary, the run is done
        logger.warning("prefect: the summary of run %s is not shown: %s", outcome.run_id, error)


def markdown(outcome: "Outcome") -> str:
    """Returns the figures of a run, its model, the link to its MLflow run, and its plots."""
    trained, report = outcome.trained, outcome.report
    rows = {
        **{f"{report.split} {name}": f"{value:.4f}" for name, value in report.figures.items()},
        "examples/s": f"{trained.examples_per_second:,.0f} on {trained.num_replicas} replicas",
        "input wait": f"{trained.input_wait_fraction:.1%} of the step time",
        **({"input advice": trained.input_advice} if trained.input_advice else {}),
        "model": f"{_registered(outcome)}, `{outcome.exported.directory}`",
    }
    if outcome.decision is not None:
        rows["gate"] = outcome.decision.line
    if trained.stopped_early:
        rows["stopped early"] = trained.stopped_early
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    links = f"[MLflow run]({outcome.tracking_url}) of `{outcome.run_id}`, {_report(outcome)}"
    plots = "".join(f"\n![{_title(file)}]({_image(file)})\n" for file in _plots(outcome.report.directory))
    return f"{links}\n\n| | |\n|---|---|\n{table}\n{plots}"


def _registered(outcome: "Outcome") -> str:
    model = outcome.registered
    return f"{model.name} version {model.version}" if model is not None else "not registered: a reproduction"


def _report(outcome: "Outcome") -> str:
    """Returns the way to the report: its page on the MLflow server, or its file where there is no server."""
    if ui_command(outcome.tracking_uri):
        return f"report `{outcome.report.directory / PAGE}`"
    return f"[report]({artifact_url(outcome.tracking_url, f'{REPORT_ARTIFACTS}/{PAGE}')})"


def _plots(report: Path) -> list[Path]:
    """Returns the plots that are shown: those of the report, the learning curves first, and that of the drift."""
    of_report = sorted(report.glob("*.png"), key=lambda file: (file.stem != "learning_curves", file.stem))
    return [file for file in (*of_report[:MAX_PLOTS], report.parent / DRIFT_PLOT) if file.is_file()]


def _title(file: Path) -> str:
    return file.stem.replace("_", " ")


def _image(file: Path) -> str:
    """Returns a plot in half its size as a link that holds it: whoever reads it may not reach the MLflow server."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(file) as image:
        image.convert("RGB").reduce(2).quantize(64).save(small, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"
