"""Inventory: what lies in a workspace, how large it is and which process is at it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tasks.download.record import receipts_digest
from tasks.errors import ConfigError, DataError
from tasks.feed.plan import CACHES
from tasks.files import COMPLETED, Record, is_completed, lock, read_receipts
from tasks.prepare.directory import VERSION
from tasks.prepare.manifest import MANIFEST, ShardManifest
from tasks.runs import LOCK, WORKER_LOCK, RunState, find_run, list_runs
from tasks.track.client import tracking_uri
from tasks.train.checkpoint import completed
from tasks.train.result import RESULT, TrainResult

INCOMPLETE = ".incomplete"  # how `tasks.files.atomic_directory` names what it has not finished


class Item(Record):
    """A file or a directory with all that is below it."""

    path: Path
    size_bytes: int
    modified: float
    """When the newest of it was written, in seconds since 1970."""


class RunItem(Item):
    """A directory of runs/."""

    state: RunState
    busy: bool
    """Whether a process holds its lock."""
    checkpoints: tuple[Item, ...]
    """The completed ones."""
    best_checkpoint: str | None
    """Name of the one that a finished training found best."""
    leftovers: tuple[Item, ...]
    """What a killed process did not finish."""
    tracking_uri: str | None
    """Of its MLflow run and registry; None if its config cannot be read, being of another release for example."""


class ShardsItem(Item):
    """A directory data/<digest>."""

    digest: str
    busy: bool
    source_digest: str | None
    """`RawData.digest` of what the shards were made from; None if they were never written to their end."""
    leftovers: tuple[Item, ...]
    caches: tuple[Item, ...]
    """Splits that a feed decoded and keeps beside them, finished or not."""


class RawItem(Item):
    """A directory raw/<digest>, or what is beside it under the same digest."""

    digests: frozenset[str]
    """Of which one is its `RawData.digest`."""
    busy: bool
    leftover: bool
    """Whether a killed process did not finish it."""


class ModelItem(Item):
    """A directory models/<name>/<run id>."""

    run_id: str
    leftover: bool


class Inventory(Record):
    """What lies in a workspace."""

    workspace: Path
    runs: tuple[RunItem, ...]
    """Newest first."""
    strays: tuple[Item, ...]
    """Directories of runs/ that were never runs or are half removed."""
    shards: tuple[ShardsItem, ...]
    raw: tuple[RawItem, ...]
    models: tuple[ModelItem, ...]


def take_inventory(workspace: Path) -> Inventory:
    """Returns what lies in a workspace; writes nothing. Raises DataError if a run's state.json is damaged."""
    states = list_runs(workspace)
    known = {state.id for state in states}
    return Inventory(
        workspace=workspace,
        runs=tuple(_run(workspace, state) for state in states),
        strays=tuple(_item(path) for path in _folders(workspace / "runs") if path.name not in known),
        shards=tuple(_shards(path) for path in _folders(workspace / "data")),
        raw=tuple(_raw(workspace / "raw")),
        models=tuple(
            _model(path) for name in _folders(workspace / "models") for path in _folders(name) if _is_of_run(path)
        ),
    )


def shards_lock(directory: Path) -> Path:
    """Returns the lock that `prepare` holds while it writes data/<digest>."""
    return directory.with_name(f".{directory.name}.lock")


def cache_lock(directory: Path) -> Path:
    """Returns the lock that a feed holds while it writes a cache."""
    return directory.with_name(f".{directory.name.removesuffix(INCOMPLETE)}.lock")


def raw_lock(path: Path) -> Path:
    """Returns the lock that `download` holds while it writes anything of a digest in raw/."""
    folder = path.parent.parent if path.parent.name == ".fetching" else path.parent
    return folder / f".{path.name.partition('.')[0]}.lock"


def run_locks(directory: Path) -> tuple[Path, Path]:
    """Returns the locks of a run: of who carries it out, and of its training process, which may outlive that."""
    return directory / LOCK, directory / WORKER_LOCK


def is_held(path: Path) -> bool:
    """Returns whether a process holds a lock; makes no file."""
    if not path.exists():
        return False
    try:
        with lock(path, timeout_seconds=0):
            return False
    except TimeoutError:
        return True


def _run(workspace: Path, state: RunState) -> RunItem:
    directory = workspace / "runs" / state.id
    try:
        uri = tracking_uri(find_run(workspace, state.id))
    except (ConfigError, OSError):
        uri = None
    return RunItem(
        **_item(directory).model_dump(),
        state=state,
        busy=any(map(is_held, run_locks(directory))),
        checkpoints=tuple(map(_item, completed(directory / "checkpoints"))),
        best_checkpoint=_best_checkpoint(directory),
        leftovers=tuple(
            _item(path) for path in sorted([*directory.glob(f"*{INCOMPLETE}"), *directory.glob(f"*/*{INCOMPLETE}")])
        ),
        tracking_uri=uri,
    )


def _best_checkpoint(directory: Path) -> str | None:
    try:
        best = TrainResult.read(directory / RESULT).best_checkpoint.name
    except DataError:  # not trained to its end, or nobody knows any more
        return None
    return best if is_completed(directory / "checkpoints" / best) else None


def _shards(directory: Path) -> ShardsItem:
    sources = [
        ShardManifest.read(place / MANIFEST).source_digest
        for place in directory.glob(f"*/{VERSION}")
        if is_completed(place) and (place / MANIFEST).is_file()
    ]
    return ShardsItem(
        **_item(directory).model_dump(),
        digest=directory.name,
        busy=is_held(shards_lock(directory)),
        source_digest=sources[0] if sources else None,
        leftovers=tuple(_item(path) for path in sorted(directory.glob(f"*/{VERSION}.*"))),
        caches=tuple(_item(path) for folder in sorted(directory.glob(f"*/{CACHES}")) for path in _folders(folder)),
    )


def _raw(folder: Path) -> Iterator[RawItem]:
    finished = [path for path in sorted(folder.glob("*")) if not path.name.startswith(".")]
    for path in [*finished, *_folders(folder / ".fetching")]:
        yield RawItem(
            **_item(path).model_dump(),
            digests=frozenset({path.name.partition(".")[0], *_content_digest(path)}),
            busy=is_held(raw_lock(path)),
            leftover=path.suffix == INCOMPLETE or path.parent != folder,
        )


def _content_digest(directory: Path) -> Iterable[str]:
    """Returns `RawData.digest` of what was fetched from a URL, whose directory is named by the URL."""
    try:
        receipts = read_receipts(directory)
    except DataError:  # not finished, or damaged: it would be fetched again
        return []
    return [receipts_digest(receipts)]


def _model(directory: Path) -> ModelItem:
    return ModelItem(
        **_item(directory).model_dump(),
        run_id=directory.name.removesuffix(INCOMPLETE),
        leftover=not (directory / COMPLETED).is_file(),
    )


def _is_of_run(directory: Path) -> bool:
    return len(directory.name.rsplit("-", 2)) == 3  # as `tasks.runs` names one; what else lies there is not ours


def _folders(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if path.is_dir() and not path.name.startswith(".")]


def _item(path: Path) -> Item:
    stats = [path.lstat()]
    for folder, _, files in os.walk(path):
        for file in files:
            with suppress(FileNotFoundError):  # a run that is going on writes and deletes meanwhile
                stats.append(os.lstat(os.path.join(folder, file)))
    return Item(
        path=path,
        size_bytes=sum(stat.st_size for stat in stats),
        modified=max(stat.st_mtime for stat in stats),
    )
