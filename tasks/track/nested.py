"""Nested runs: one MLflow run of a comparison, and below it one of each thing that was compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tasks.track.client import find_or_create_experiment, open_client, run_url

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PARENT = "mlflow.parentRunId"


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
            below = _create(client, experiment_id, child, tags={_PARENT: run_id})
            client.set_terminated(below)
        for file in artifacts:
            client.log_artifact(run_id, str(file))
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)
    return run_url(uri, experiment_id, run_id)


def _create(client: "MlflowClient", experiment_id: str, entry: Entry, *, tags: Mapping[str, str]) -> str:
    from mlflow.entities import Metric, Param
    from mlflow.utils.time import get_current_time_millis

    run_id: str = client.create_run(experiment_id, tags=dict(tags), run_name=entry.name).info.run_id
    now = get_current_time_millis()
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in entry.metrics.items()],
        params=[Param(name, value) for name, value in entry.params.items()],
    )
    return run_id
