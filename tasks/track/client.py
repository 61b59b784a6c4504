"""The MLflow client: where the runs are kept, how that place is reached, and how a person looks at it."""

import json
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from tasks.errors import TrackingError, needs_the_user
from tasks.files import lock
from tasks.runs import Run
from tasks.secrets import scrub

if TYPE_CHECKING:
    from mlflow import MlflowClient

UI_PORT = 5000
# Without it the UI opens in the mode for language models, which does not show a training.
_WORKFLOW = "workflowType=machine_learning"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # By default a server that is gone blocks each call for four minutes; the tracker has its own patience.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


def tracking_uri(run: Run) -> str:
    """Returns `tracking.uri` of the config, else MLFLOW_TRACKING_URI, else the sqlite database of the workspace."""
    return run.config.tracking.uri or default_uri(run.workspace)


def default_uri(workspace: Path) -> str:
    """Returns where runs without a `tracking.uri` of their own are kept."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{workspace / 'mlflow.db'}"


def open_client(uri: str) -> "MlflowClient":
    """Returns a client of `uri` alone, for runs and registry: MLflow's process-wide settings are not touched.

    Imports MLflow and makes or migrates a database: it takes seconds. The user's own MLFLOW_* settings hold.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # each retry; the tracker says it once
    from mlflow import MlflowClient
    from sqlalchemy import make_url

    if not uri.startswith("sqlite:"):
        return MlflowClient(tracking_uri=uri)
    database = Path(make_url(uri).database or "")
    # MLflow makes a database in many steps: a kill between two, or a second process, would spoil it for ever.
    with lock(database.with_name(f".{database.name}.lock")):
        if not database.exists():
            beside = database.with_name(f".{database.name}.incomplete")
            beside.unlink(missing_ok=True)
            MlflowClient(tracking_uri=f"sqlite:///{beside}")
            beside.rename(database)
        return MlflowClient(tracking_uri=uri)


def is_missing(uri: str) -> bool:
    """Returns whether `uri` is a database that is not there, and that `open_client` would make."""
    from sqlalchemy import make_url

    return uri.startswith("sqlite:") and not Path(make_url(uri).database or "").exists()


def ensure_experiment(client: "MlflowClient", run: Run) -> str:
    """Returns the id of the run's experiment; makes it if there is none. Raises what MLflow raises."""
    return find_or_create_experiment(client, run.config.tracking.experiment or run.config.name, run.workspace)


def find_or_create_experiment(client: "MlflowClient", name: str, workspace: Path) -> str:
    """Returns the id of the experiment of a name; makes it if there is none. Raises what MLflow raises."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        # A server decides where artifacts go; a bare database would put them into the present folder.
        location = None if _is_server(client.tracking_uri) else str(workspace / "mlartifacts")
        try:
            return str(client.create_experiment(name, artifact_location=location))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another run may have made it just now
            if found is None:
                raise
    return str(found.experiment_id)


def is_outage(error: Exception) -> bool:
    """Returns whether the same call may succeed later: no answer, a server's own failure, a full disk.

    False for what MLflow refused, and for a bug of ours.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        status = error.get_http_status_code()
        return bool(status >= 500 or status == 429)
    return isinstance(error, OSError)  # every error of requests is one


@contextmanager
def answering(what: str, uri: str, *, then: str = "") -> Iterator[None]:
    """Raises TrackingError for what the block raises because MLflow does not answer; it says `what` and `then`."""
    try:
        yield
    except Exception as error:
        if not is_outage(error) or needs_the_user(error):  # such as a disk that is full
            raise
        raise TrackingError(f"{what}: {without_password(uri)} does not answer ({first_line(error)}){then}") from error


def first_line(error: Exception) -> str:
    """Returns what an error says, without what its libraries add below and without secrets."""
    return scrub(str(error).partition("\n")[0])


def run_url(uri: str, experiment_id: str, mlflow_run_id: str) -> str:
    """Returns the link of a run in the MLflow UI: of the server, or of the UI that `ui_command` opens."""
    return f"{_ui_address(uri)}/#/experiments/{experiment_id}/runs/{mlflow_run_id}?{_WORKFLOW}"


def artifact_url(run_page: str, artifact: str) -> str:
    """Returns the link of an artifact's page in the MLflow UI, by that of `run_url`."""
    page, _, query = run_page.partition("?")
    return f"{page}/artifacts/{artifact}?{query}"


def compare_url(uri: str, experiment_ids: Sequence[str], mlflow_run_ids: Sequence[str]) -> str:
    """Returns the link of the page that shows runs side by side, like `run_url`."""
    lists = {"runs": mlflow_run_ids, "experiments": experiment_ids}
    query = urlencode({name: json.dumps(list(ids), separators=(",", ":")) for name, ids in lists.items()})
    return f"{_ui_address(uri)}/#/compare-runs?{query}&{_WORKFLOW}"


def ui_command(uri: str) -> str:
    """Returns the shell command that opens the UI on a database; empty for a server, whose UI is open already."""
    return "" if _is_server(uri) else f"mlflow ui --backend-store-uri {shlex.quote(uri)} --port {UI_PORT}"


def without_password(uri: str) -> str:
    """Returns the URI without user and password, for messages."""
    parts = urlsplit(uri)
    return uri.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1) if parts.netloc else uri


def _ui_address(uri: str) -> str:
    return without_password(uri).rstrip("/") if _is_server(uri) else f"http://127.0.0.1:{UI_PORT}"


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))
