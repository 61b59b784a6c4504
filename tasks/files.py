"""Files: atomic directories with digests, and the locks that die with their process."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tasks.errors import DataError

COMPLETED = "COMPLETED"
logger = logging.getLogger("millstream")


class Record(BaseModel):
    """What passes through a door: small, frozen, JSON; paths, counts and digests, never data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Writes the record as JSON, at once or not at all."""
        write_atomic(path, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns the record in a file; raises DataError if it is missing or not such a record."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: no readable {cls.__name__}: {error}") from error


class Receipt(Record):
    """What a completed directory knows of one of its files."""

    size_bytes: int
    sha256: str


_RECEIPTS = TypeAdapter(dict[str, Receipt])


def digest_bytes(data: bytes) -> str:
    """Returns the sha256 of `data` in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """Returns the sha256 of a file in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_json(value: Any) -> str:
    """Returns the sha256 of a JSON value in hex, whatever the order of its keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file beside its place, syncs it and renames it: a reader sees the old one or the new one."""
    make_private(path.parent)
    with atomic_file(path) as beside:
        beside.write_bytes(data)


def make_private(directory: Path) -> None:
    """Makes a directory and those above it that are missing, which only this user may enter; one that is there stays.

    Every stage takes a lock before it writes, so that the workspace is made here: what lies below it, of whatever
    program, is as private as it.
    """
    for each in [*reversed(directory.parents), directory]:
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a path beside `path`; if the block ends well, what was written there is synced and takes the place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        _sync(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def atomic_directory(
    directory: Path, *, digests: Mapping[str, str] | None = None, go_on: bool = False
) -> Iterator[Path]:
    """Yields `<directory>.incomplete`, empty; if the block ends well, it is synced, renamed and marked COMPLETED.

    If the block raises, nothing is left of it; if the process dies, no reader ever trusts what was written and the
    next writer begins anew. One writer at a time: hold a `lock`. An existing `directory` is replaced. `digests`, filled
    by the block, holds the sha256 of files that were measured while they were written; the others are read again.
    With `go_on` what is there of an earlier try stays, and stays if this one fails too: the block decides what to take.
    """
    incomplete = directory.with_name(directory.name + ".incomplete")
    if not go_on:
        shutil.rmtree(incomplete, ignore_errors=True)
    make_private(incomplete.parent)
    incomplete.mkdir(mode=0o700, exist_ok=go_on)
    try:
        yield incomplete
    except BaseException:
        if not go_on:
            shutil.rmtree(incomplete, ignore_errors=True)
        raise
    receipts = {}
    for file in sorted(incomplete.rglob("*")):
        if file.is_file():
            name = str(file.relative_to(incomplete))
            sha256 = (digests or {}).get(name) or digest_file(file)
            receipts[name] = {"size_bytes": file.stat().st_size, "sha256": sha256}
    _sync_tree(incomplete)
    shutil.rmtree(directory, ignore_errors=True)
    os.replace(incomplete, directory)
    _sync(directory.parent)
    write_atomic(directory / COMPLETED, json.dumps(receipts, indent=1, sort_keys=True).encode())


def is_completed(directory: Path) -> bool:
    """Returns whether the directory was written to its end."""
    return (directory / COMPLETED).is_file()


def verify(directory: Path) -> None:
    """Checks every file of a completed directory against its recorded size and sha256.

    Raises DataError that names the first file that is missing, of another size or of other content.
    """
    for name, damage in damages(directory):
        raise DataError(f"{directory / name}: {damage}; delete {directory} and run again")


def damages(directory: Path) -> Iterator[tuple[str, str]]:
    """Yields each file of a completed directory that is not as it was recorded, and what is wrong with it.

    Raises DataError if the directory is not completed, or its record of itself is damaged.
    """
    receipts = read_receipts(directory)
    names = {receipt.sha256: name for name, receipt in receipts.items()}
    for name, receipt in receipts.items():
        file = directory / name
        if not file.is_file():
            yield name, "missing"
            continue
        size_bytes, sha256 = file.stat().st_size, digest_file(file)
        if sha256 == receipt.sha256:
            continue
        if sha256 in names:
            yield name, f"holds what belongs into {names[sha256]}"
        elif size_bytes != receipt.size_bytes:
            yield name, f"has {size_bytes} bytes, not {receipt.size_bytes}"
        else:
            yield name, "content has changed since it was written"


def read_receipts(directory: Path) -> dict[str, Receipt]:
    """Returns what a completed directory recorded of each of its files; raises DataError if it did not, or damaged."""
    if not is_completed(directory):
        raise DataError(f"{directory}: has no {COMPLETED}: it was never written to its end; run the stage again")
    try:
        return _RECEIPTS.validate_json((directory / COMPLETED).read_bytes())
    except ValueError as error:
        raise DataError(f"{directory / COMPLETED}: damaged ({error}); delete the directory and run again") from error


def is_whole(directory: Path) -> bool:
    """Returns whether the directory verifies; if not, a warning says why it is about to be made again."""
    try:
        verify(directory)
    except DataError as error:
        logger.warning("%s; doing so now", error)
        return False
    return True


@contextmanager
def lock(path: Path, *, timeout_seconds: float = -1) -> Iterator[None]:
    """Holds an exclusive lock that the kernel drops when this process ends, however it ends.

    Waits for ever by default; raises TimeoutError after `timeout_seconds`, DataError if its folder cannot be written.
    """
    try:
        make_private(path.parent)
        held = FileLock(path).acquire(timeout=timeout_seconds)
    except Timeout as error:
        raise TimeoutError(f"{path} is held by another process") from error
    except OSError as error:  # every stage takes a lock before it writes, so that this is where it is found out
        raise DataError(
            f"{path.parent}: cannot be written ({error.strerror}); set MILLSTREAM_WORKSPACE to a folder that can"
        ) from error
    with held:
        yield


def lock_for_life(path: Path, *, timeout_seconds: float) -> None:
    """Takes a lock that this process holds until it ends; raises TimeoutError if another holds it for so long."""
    _held.enter_context(lock(path, timeout_seconds=timeout_seconds))


_held = ExitStack()


def _sync_tree(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        _sync(path)


def _sync(path: Path) -> None:
    # fsync takes a file and a directory alike; a rename is durable once its directory is synced.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
