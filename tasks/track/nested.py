"""Nested runs: one MLflow run of a comparison, and below it one of each thing that was compared."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tasks.track.client import answering, find_or_create_experiment, open_client, run_url

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT_TAG = "mlflow.parentRunId"
_THEN = "; start it or correct tracking.uri, then give the same command again: it goes on from here"


class Entry(NamedTuple):
    """What is to stand in one run."""

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]


def log_nested(
    uri: str, workspace: Path, experiment: str, parent: Entry, children: Sequence[Entry], *, artifacts: Sequence[Path]
) -> str:
    """Returns the link of a new run that holds `parent` and the files, once `children` stand below it.

    All are FINISHED, or FAILED if this is interrupted. Raises what MLflow raises.
    """
    client = open_client(uri)
    experiment_id = find_or_create_experiment(client, experiment, workspace)
    run_id = _create(client, experiment_id, parent, tags={})
    status = "FAILED"
    try:
        for child in children:
            below = _create(client, experiment_id, child, tags={PARENT_TAG: run_id})
            client.set_terminated(below)
        for file in artifacts:
            client.log_artifact(run_id, str(file))
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)
    return run_url(uri, experiment_id, run_id)


class Parent:
    """An MLflow run below which others are tracked while it is open; use `parent_run`."""

    def __init__(self, client: "MlflowClient", experiment_id: str, run_id: str) -> None:
        self.run_id, self.url = run_id, run_url(client.tracking_uri, experiment_id, run_id)
        self._client = client

    def log_result(self, metrics: Mapping[str, float], artifacts: Sequence[Path]) -> None:
        """Logs what came of it; raises TrackingError if MLflow does not answer."""
        with answering(f"MLflow run {self.run_id}", self._client.tracking_uri, then=_THEN):
            for file in artifacts:
                self._client.log_artifact(self.run_id, str(file))
            _log(self._client, self.run_id, Entry("", {}, metrics))


@contextmanager
def parent_run(uri: str, workspace: Path, experiment: str, parent: Entry, *, run_id: str = "") -> Iterator[Parent]:
    """Yields a new run that holds `parent`, or the one of `run_id`; it ends as the block: FINISHED, FAILED or KILLED.

    Raises TrackingError if MLflow does not answer.
    """
    with answering(f"MLflow run {parent.name}", uri, then=_THEN):
        client = open_client(uri)
        experiment_id = find_or_create_experiment(client, experiment, workspace)
        if run_id:
            client.update_run(run_id, status="RUNNING")
        else:
            run_id = _create(client, experiment_id, parent, tags={})
    status = "FINISHED"
    try:
        yield Parent(client, experiment_id, run_id)
    except Exception:
        status = "FAILED"
        raise
    except BaseException:  # KeyboardInterrupt, SystemExit, Prefect's TerminationSignal
        status = "KILLED"
        raise
    finally:
        with answering(f"MLflow run {run_id}", uri, then=_THEN):
            client.set_terminated(run_id, status)


def _create(client: "MlflowClient", experiment_id: str, entry: Entry, *, tags: Mapping[str, str]) -> str:
    run_id: str = client.create_run(experiment_id, tags=dict(tags), run_name=entry.name).info.run_id
    _log(client, run_id, entry)
    return run_id


def _log(client: "MlflowClient", run_id: str, entry: Entry) -> None:
    from mlflow.entities import Metric, Param
    from mlflow.utils.time import get_current_time_millis

    now = get_current_time_millis()
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in entry.metrics.items()],
        params=[Param(name, value) for name, value in entry.params.items()],
    )
