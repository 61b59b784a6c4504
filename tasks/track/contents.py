"""Contents: what the MLflow run of a pipeline run holds besides its points, read from the run's directory."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.files import digest_json, is_completed
from tasks.prepare.directory import VERSION
from tasks.prepare.manifest import MANIFEST, QUARANTINE, ShardManifest
from tasks.promote.record import DRIFT, DRIFT_PLOT, GATE, GATE_REASONS_TAG, GATE_TAG, Decision
from tasks.runs import Run
from tasks.track.params import compare, flatten
from tasks.track.provenance import find_provenance
from tasks.train.result import RESULT, TrainResult

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUN_ID_TAG = "millstream.run_id"
WORKSPACE_TAG = "millstream.workspace"
HOST_TAG = "millstream.host"
KEY_TAG, DATA_TAG = "millstream.key", "millstream.data_digest"
REPLICAS_TAG, LOST_TAG = "millstream.num_replicas", "millstream.lost_devices"
REPRODUCES_TAG = "millstream.reproduces"
REQUIREMENTS = "requirements.txt"
REPORT_ARTIFACTS, DATA_ARTIFACTS = "report", "data"
MAX_PARAMS_PER_CALL = 100  # MLflow's limits
MAX_DIGEST_LENGTH = 36


@dataclass(frozen=True)
class Item:
    """One thing that an MLflow run is to hold."""

    name: str
    stamp: str
    """Differs when what is to be sent differs."""
    send: Callable[["MlflowClient", str], None]
    """Called with the client and the MLflow run id; may be repeated."""


def run_items(run: Run) -> Iterator[Item]:
    """Yields what there is now: tags, params, files, the data set and the name, whether or not it was sent before."""
    trained = find_trained(run)
    tags = _tags(run, trained)
    yield Item("tags", digest_json(tags), lambda client, to: _send_tags(client, to, tags))
    params = flatten(run.config.model_dump(mode="json"))
    if trained is not None:
        params |= {"num_replicas": str(trained.num_replicas), "num_parameters": str(trained.num_parameters)}
    yield Item("params", digest_json(params), lambda client, to: _send_params(client, to, params))
    yield _file(run.directory / "config.yaml")
    yield from (_file(file) for name in (DRIFT, DRIFT_PLOT, GATE) if (file := run.directory / name).is_file())
    if (provenance := find_provenance(run)) is not None:
        text = provenance.requirements()
        yield Item(REQUIREMENTS, digest_json(text), lambda client, to: client.log_text(to, text, REQUIREMENTS))
    shards = shards_directory(run)
    if is_completed(shards):
        yield Item("dataset", shards.parents[1].name, lambda client, to: _send_dataset(client, to, run))
        yield from (_file(file, DATA_ARTIFACTS) for name in (MANIFEST, QUARANTINE) if (file := shards / name).is_file())
    if is_completed(run.profile):
        for file in sorted(run.profile.rglob("*.xplane.pb")):
            yield _file(file, str(file.parent.relative_to(run.directory)))
    if is_completed(run.report):
        files = (file for file in sorted(run.report.iterdir()) if file.suffix in {".html", ".json", ".md", ".png"})
        yield from (_file(file, REPORT_ARTIFACTS) for file in files)  # the predictions stay where they are
    name = run_name(run, trained)
    yield Item("name", name, lambda client, to: client.update_run(to, name=name))


def run_name(run: Run, trained: TrainResult | None = None) -> str:
    """Returns the name of the MLflow run: config, key, and once it is trained replicas and the batch of each."""
    name = f"{run.config.name}-{run.state().key[:6]}"
    if trained is None:
        return name
    return f"{name}-{trained.num_replicas}x{-(-run.config.feed.global_batch_size // trained.num_replicas)}"


def find_trained(run: Run) -> TrainResult | None:
    """Returns the result of the run's training, if it was trained to its end."""
    file = run.directory / RESULT
    return TrainResult.read(file) if file.is_file() else None


def find_manifest(run: Run) -> ShardManifest | None:
    """Returns the manifest of the run's shards, if they are there."""
    directory = shards_directory(run)
    return ShardManifest.read(directory / MANIFEST) if is_completed(directory) else None


def shards_directory(run: Run) -> Path:
    """Returns where the run's shards lie, if they are still there."""
    return run.workspace / "data" / run.state().data_digest / run.config.name / VERSION


def _tags(run: Run, trained: TrainResult | None) -> dict[str, str]:
    state, provenance = run.state(), find_provenance(run)
    tags = {
        RUN_ID_TAG: state.id,
        KEY_TAG: state.key,
        WORKSPACE_TAG: str(run.workspace),
        HOST_TAG: state.host,
        DATA_TAG: state.data_digest,
        "millstream.global_batch_size": str(run.config.feed.global_batch_size),
        "mlflow.source.name": "millstream",
    }
    if trained is not None:
        tags[REPLICAS_TAG] = str(trained.num_replicas)
        # Always, because what a run that is trained longer no longer needs would stay in MLflow.
        tags["millstream.input_advice"] = trained.input_advice or "none"
        if trained.stopped_early:
            tags["millstream.stopped_early"] = trained.stopped_early
    if state.lost_devices:
        tags[LOST_TAG] = "; ".join(state.lost_devices)
    if state.reproduces:
        tags[REPRODUCES_TAG] = state.reproduces
    if (run.directory / GATE).is_file():
        decision = Decision.read(run.directory / GATE)
        tags |= {GATE_TAG: decision.word, GATE_REASONS_TAG: "; ".join(decision.reasons)}
    if state.prefect_flow_run_ids:
        tags["prefect.flow_run_id"] = state.prefect_flow_run_ids[-1]
    return tags | (provenance.as_tags() if provenance is not None else {})


def _send_tags(client: "MlflowClient", mlflow_run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    client.log_batch(mlflow_run_id, tags=[RunTag(*item) for item in tags.items()])


def _send_params(client: "MlflowClient", mlflow_run_id: str, params: Mapping[str, str]) -> None:
    from mlflow.entities import Param, RunTag

    new, changed = compare(params, client.get_run(mlflow_run_id).data.params)
    entries = [*(Param(*item) for item in new.items()), *(RunTag(*item) for item in changed.items())]
    for start in range(0, len(entries), MAX_PARAMS_PER_CALL):
        some = entries[start : start + MAX_PARAMS_PER_CALL]
        client.log_batch(
            mlflow_run_id,
            params=[entry for entry in some if isinstance(entry, Param)],
            tags=[entry for entry in some if isinstance(entry, RunTag)],
        )


def _send_dataset(client: "MlflowClient", mlflow_run_id: str, run: Run) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    manifest, directory = find_manifest(run), shards_directory(run)
    assert manifest is not None, f"{directory} has gone"
    dataset = Dataset(
        name=run.config.name,
        digest=manifest.data_digest[:MAX_DIGEST_LENGTH],
        source_type="local",
        source=json.dumps({"uri": str(directory)}),
        profile=json.dumps(data_counts(manifest)),
    )
    client.log_inputs(mlflow_run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])


def data_counts(manifest: ShardManifest) -> dict[str, int]:
    """Returns the counts of a run's data, as data/* and the data set's profile name them."""
    splits = manifest.splits
    return {
        "num_shards": sum(len(split.shards) for split in splits.values()),
        "num_bad": manifest.num_bad,
        **{f"num_examples_{name}": split.num_examples for name, split in splits.items()},
    }


def _file(file: Path, folder: str | None = None) -> Item:
    found = file.stat()
    return Item(
        f"{folder}/{file.name}" if folder else file.name,
        f"{found.st_size}:{found.st_mtime_ns}",
        lambda client, to: client.log_artifact(to, str(file), folder),
    )
