"""Fixtures for tests of the registry."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from mlflow import MlflowClient

from tasks.config import build_config
from tasks.evaluate.report import EvalReport
from tasks.evaluate.stage import evaluate
from tasks.export.manifest import ExportManifest
from tasks.export.stage import export
from tasks.prepare.manifest import Shards
from tasks.promote.record import RegisteredModel
from tasks.promote.register import register
from tasks.promote.registered import versions_by_alias
from tasks.runs import Run, open_run
from tasks.track.client import open_client
from tasks.track.tracker import tracked
from tasks.train.stage import train
from tests.every_kind import write_every_kind

CONFIG = {
    "name": "every_kind",
    "feed": {"global_batch_size": 16, "block": 64, "window": 320, "image_size": [4, 4], "text": {"length": 6}},
    "model": {"build": "tasks.models.tabular:build", "args": {"width": 16}},
    "train": {"total": "1 epochs", "optimizer": {"learning_rate": 1e-3, "schedule": {"kind": "constant"}}},
    "distribute": {"kind": "mirrored", "num_replicas": 2},
    "evaluate": {"slices": ["colour", "weight (g)", "count"], "min_slice_examples": 3},
}


@pytest.fixture(scope="session", autouse=True)
def no_pickle() -> Iterator[None]:
    """Models are registered, loaded and served where MLflow may read no pickle, as whoever hardens it wants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        yield


class Registered(NamedTuple):
    """A run that went all the way."""

    run: Run
    shards: Shards
    report: EvalReport
    exported: ExportManifest
    model: RegisteredModel


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory: pytest.TempPathFactory, workers: ModuleType, no_pickle: None) -> Registered:
    """A run of hand-written shards, trained on two replicas, evaluated, exported and registered."""
    workspace = tmp_path_factory.mktemp("every-kind")
    shards = write_every_kind(workspace / "shards", {"train": 150, "validation": 10, "test": 11})
    config = build_config(CONFIG)
    with (
        open_run(workspace, config, data_digest=shards.data_digest, code_digest="c" * 16, fresh=True) as run,
        tracked(run) as tracker,
    ):
        trained = train(run, shards)
        report = evaluate(run, shards, trained)
        exported = export(run, shards, trained, report)
        model = register(run, tracker.mlflow_run_id(), shards, report, exported)
    return Registered(run, shards, report, exported, model)


@pytest.fixture
def place(every_kind: Registered, tmp_path: Path) -> tuple[Path, MlflowClient]:
    """A workspace whose registry has three versions of a model, and no champion."""
    shutil.copyfile(every_kind.run.workspace / "mlflow.db", tmp_path / "mlflow.db")
    client = open_client(f"sqlite:///{tmp_path / 'mlflow.db'}")
    first = client.get_model_version("every_kind", "1")
    for alias in versions_by_alias(client, "every_kind"):
        client.delete_registered_model_alias("every_kind", alias)
    files = client.get_model_version_download_uri("every_kind", "1")
    for _ in range(2):
        client.create_model_version("every_kind", files, run_id=first.run_id, tags=first.tags)
    return tmp_path, client
