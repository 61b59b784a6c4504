"""Staging: a source that is code (a TFDS builder, a reader of the user's) runs in a worker, into a raw directory."""

import importlib.metadata
import logging
import os
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tasks.config import DataConfig
from tasks.download.record import RawData
from tasks.download.staged import SplitColumn
from tasks.errors import ConfigError
from tasks.files import atomic_directory, digest_json, is_whole, lock, read_receipts
from tasks.progress import step_progress
from tasks.source_code import source_code_digest
from tasks.sources import ArraySource, TfdsSource
from tasks.splits import FileSplits, GroupSplits, TimeSplits
from tasks.workers import launch

logger = logging.getLogger("millstream")

_FORMAT = 2  # of the staged files; part of the digest
_WORKERS = {"tfds": "tasks.download.tfds_worker:stage", "array": "tasks.download.array_worker:stage"}
_NUM_RETRIES = 5  # of a download that was cut or refused
_SILENCE_SECONDS = 120.0  # after which a server counts as gone


def stage(config: DataConfig, workspace: Path) -> RawData:
    """Returns what the source yields, as Parquet files in raw/<digest>/ of the workspace, made unless there and whole.

    TFDS keeps its own copy in `data_dir`, or in tfds/ of the workspace, and downloads nothing that is prepared there.
    Raises ConfigError or DataError if the source is not found, does not fit the config, or fails; see the workers.
    """
    source = _staged_source(config)
    digest = staging_digest(config)
    directory = workspace.absolute() / "raw" / digest
    with lock(directory.with_name(f".{digest}.lock")):
        reused = directory.exists() and is_whole(directory)
        if not reused:
            with atomic_directory(directory) as incomplete:
                _call_worker(source, config, workspace.absolute(), incomplete)
    return RawData.of_receipts(directory, read_receipts(directory), digest, reused=reused)


def staging_digest(config: DataConfig) -> str:
    """Returns `RawData.digest` of a staged source without running it, from what decides its examples.

    For a reader of the user's these are its source code, arguments and `version`; for TFDS the name, and where that
    names no version, or the data set is the user's own, what resolves it: the release of TFDS, the source code.
    Raises ConfigError if the module of either is not found.
    """
    source = _staged_source(config)
    # Where code and TFDS's copy lie decides nothing, and no image is decoded yet.
    identity = source.model_dump(mode="json", exclude={"folder", "data_dir", "max_pixels"})
    code = release = None
    if isinstance(source, ArraySource):
        setting = f"data.source.read={source.read!r}"
        code = source_code_digest(source.read.partition(":")[0], source.folder, setting=setting)
    elif source.module is not None:
        code = source_code_digest(source.module, source.folder, setting=f"data.source.module={source.module!r}")
    elif not re.search(r":\d", source.name):
        release = importlib.metadata.version("tensorflow-datasets")
    # What was staged as classes keeps the digest that it had when there was nothing else.
    others = [config.target.kind] if config.target.kind in ("multi_label", "regression") else []
    return digest_json([_FORMAT, identity, _column(config), code, release, *others])


def _staged_source(config: DataConfig) -> TfdsSource | ArraySource:
    source = config.source
    assert isinstance(source, TfdsSource | ArraySource), source.kind
    if isinstance(config.splits, FileSplits):
        raise ConfigError(f"data.splits.kind=file: {_name(source)} has no files; use official, fraction, group or time")
    return source


def _column(config: DataConfig) -> SplitColumn | None:
    """Returns name and use (group or time) of the column that data.splits goes by."""
    splits = config.splits
    return {"name": splits.column, "use": splits.kind} if isinstance(splits, GroupSplits | TimeSplits) else None


def _call_worker(source: TfdsSource | ArraySource, config: DataConfig, workspace: Path, directory: Path) -> None:
    log = directory.with_name(f"{directory.stem}.log")
    arguments: dict[str, Any] = {
        "source": source.model_dump(mode="json"),
        "kind": config.target.kind,
        "column": _column(config),
        "directory": str(directory),
        "log": str(log),
    }
    if isinstance(source, TfdsSource):
        arguments["data_dir"] = source.data_dir or str(workspace / "tfds")
        arguments["num_retries"] = _NUM_RETRIES
        arguments["silence_seconds"] = _SILENCE_SECONDS
    alone: AbstractContextManager[None] = nullcontext()
    if isinstance(source, TfdsSource):  # two preparations of one data set would get in each other's way
        alone = lock(workspace / "raw" / ".tfds.lock")
    with alone, step_progress(f"download: {_name(source)}") as show:

        def on_progress(message: dict[str, Any]) -> None:
            if message["phase"] == "staged":
                show(f"{message['num_examples']:,} examples staged")
            elif message["phase"] == "note":
                logger.info("download: %s", message["line"])

        launch.call(
            _WORKERS[source.kind],
            arguments,
            log=log,
            environments=[{"CUDA_VISIBLE_DEVICES": "-1"}],  # TensorFlow would take all the memory of a GPU that trains
            import_path=[os.path.abspath(source.folder)] if source.folder else [],
            on_progress=on_progress,
        )


def _name(source: TfdsSource | ArraySource) -> str:
    return source.name if isinstance(source, TfdsSource) else source.read
