"""Recorded: what MLflow holds of a run of ours, enough to carry it out again."""

import difflib
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tasks.errors import DataError, RunError
from tasks.files import Record
from tasks.prepare.manifest import MANIFEST
from tasks.strict_yaml import parse_yaml
from tasks.track.client import run_url, without_password
from tasks.track.contents import (
    DATA_TAG,
    KEY_TAG,
    LOST_TAG,
    REPLICAS_TAG,
    REPRODUCES_TAG,
    REQUIREMENTS,
    RUN_ID_TAG,
    WORKSPACE_TAG,
)
from tasks.track.provenance import CODE_TAG, COMMIT_TAG, Provenance

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as MlflowRun

CONFIG = "config.yaml"
DIGEST = re.compile(r"[0-9a-f]{7,64}")  # the whole of one, or its beginning
_TAGS_OF_OURS = {RUN_ID_TAG, KEY_TAG, DATA_TAG}
_DIGEST_TAGS = (DATA_TAG, COMMIT_TAG, CODE_TAG, KEY_TAG)
_ID = re.compile(r"[\w.-]+")  # of ours, and of MLflow's
_MLFLOW_ID = re.compile(r"[0-9a-f]{32}")
_MAX_RUNS, _MAX_NAMED = 1000, 5  # that are looked through, and named in a message


class Recorded(Record):
    """What MLflow holds of a run."""

    run_id: str
    mlflow_run_id: str
    status: str
    """Of the MLflow run: FINISHED, FAILED, KILLED or RUNNING."""
    url: str
    """Its page in the MLflow UI."""
    workspace: Path
    """Where it was carried out, on Provenance.host."""
    key: str
    """Digest of its config, data digest and code digest."""
    config: dict[str, JsonValue] | None
    """Its config.yaml; None if that is gone."""
    data_digest: str
    """Of the shards."""
    source_digest: str | None
    """RawData.digest of what they were made of; None if their manifest is gone."""
    provenance: Provenance
    """Commit, code and environment; without packages if requirements.txt is gone."""
    num_replicas: int | None
    """None of one that was not trained to its end."""
    lost_devices: str
    """Devices without which it went on; empty if there are none."""
    reproduces: str
    """Id of the run that it repeats; empty if it does not."""
    metrics: dict[str, float]
    """The last value of each."""


def find_recorded(client: "MlflowClient", run_id: str, uri: str) -> Recorded:
    """Returns what MLflow holds of a run, by its id or by that of its MLflow run.

    Raises RunError, with what may have been meant, if there is none; what MLflow raises if it does not answer.
    """
    found = _find(client, run_id)
    if found is None:
        known = _known_runs(client)
        close = difflib.get_close_matches(run_id, known, n=1)
        meant = f"did you mean {close[0]}" if close else f"the newest are: {', '.join(known[:_MAX_NAMED]) or 'none'}"
        raise RunError(
            f"no run {run_id!r} in {without_password(uri)}; {meant}; MLFLOW_TRACKING_URI names another server or "
            "database"
        )
    return _recorded(client, found, uri)


def find_by_digest(client: "MlflowClient", digest: str, uri: str) -> tuple[Recorded, ...]:
    """Returns what MLflow holds of the runs whose data, commit, code or key has a digest, or one that begins so."""
    found = [run for tag in _DIGEST_TAGS for run in _search(client, f"tags.`{tag}` LIKE '{digest}%'")]
    runs = {run.info.run_id: run for run in found if run.data.tags.keys() >= _TAGS_OF_OURS}
    newest_first = sorted(runs.values(), key=lambda run: -run.info.start_time)
    return tuple(_recorded(client, run, uri) for run in newest_first)


def runs_with(client: "MlflowClient", tag: str, value: str) -> tuple[str, ...]:
    """Returns the ids of the runs that have a tag of this value, newest first."""
    found = _search(client, f"tags.`{tag}` = '{value}'")
    return tuple(run.data.tags[RUN_ID_TAG] for run in found if RUN_ID_TAG in run.data.tags)


def _find(client: "MlflowClient", run_id: str) -> "MlflowRun | None":
    from mlflow.exceptions import MlflowException

    if not _ID.fullmatch(run_id):  # would be a part of a query
        return None
    if not _MLFLOW_ID.fullmatch(run_id):
        found = _search(client, f"tags.`{RUN_ID_TAG}` = '{run_id}'")
        return found[0] if found else None
    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _known_runs(client: "MlflowClient") -> list[str]:
    """Returns the ids of runs of ours, newest first."""
    return [run.data.tags[RUN_ID_TAG] for run in _search(client, "") if RUN_ID_TAG in run.data.tags]


def _search(client: "MlflowClient", asked: str) -> "list[MlflowRun]":
    """Returns the newest MLflow runs of any experiment, newest first."""
    experiments = [found.experiment_id for found in client.search_experiments()]
    return list(client.search_runs(experiments, asked, max_results=_MAX_RUNS, order_by=["attributes.start_time DESC"]))


def _recorded(client: "MlflowClient", found: "MlflowRun", uri: str) -> Recorded:
    tags, info = found.data.tags, found.info
    if not tags.keys() >= _TAGS_OF_OURS:
        raise DataError(f"MLflow run {info.run_id}: is not a run of the pipeline's; `millstream runs` lists those")
    with TemporaryDirectory() as folder:
        config = _text(client, info.run_id, CONFIG, folder)
        requirements = _text(client, info.run_id, REQUIREMENTS, folder)
        manifest = _text(client, info.run_id, f"data/{MANIFEST}", folder)
    return Recorded(
        run_id=tags[RUN_ID_TAG],
        mlflow_run_id=info.run_id,
        status=info.status,
        url=run_url(uri, info.experiment_id, info.run_id),
        workspace=Path(tags[WORKSPACE_TAG]),
        key=tags[KEY_TAG],
        config=_tree(config, info.run_id),
        data_digest=tags[DATA_TAG],
        source_digest=_source_digest(manifest, info.run_id),
        provenance=Provenance.of_mlflow(tags, requirements or ""),
        num_replicas=int(tags[REPLICAS_TAG]) if REPLICAS_TAG in tags else None,
        lost_devices=tags.get(LOST_TAG, ""),
        reproduces=tags.get(REPRODUCES_TAG, ""),
        metrics=found.data.metrics,
    )


def _text(client: "MlflowClient", mlflow_run_id: str, path: str, folder: str) -> str | None:
    """Returns an artifact of a run; None if it has no such one."""
    above, _, _ = path.rpartition("/")
    if path not in {item.path for item in client.list_artifacts(mlflow_run_id, above or None)}:
        return None
    return Path(client.download_artifacts(mlflow_run_id, path, folder)).read_text(encoding="utf-8")


def _tree(config: str | None, mlflow_run_id: str) -> dict[str, Any] | None:
    tree = None if config is None else parse_yaml(config, f"{CONFIG} of MLflow run {mlflow_run_id}")
    if tree is not None and not isinstance(tree, dict):
        raise DataError(f"{CONFIG} of MLflow run {mlflow_run_id}: damaged, it is no mapping")
    return tree


def _source_digest(manifest: str | None, mlflow_run_id: str) -> str | None:
    try:
        return None if manifest is None else str(json.loads(manifest)["source_digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{MANIFEST} of MLflow run {mlflow_run_id}: damaged ({error})") from error
