"""The prepare stage: shards that are there and whole are taken, damaged ones mended, missing ones written."""

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from tasks.config import DataConfig
from tasks.download.fingerprint import Fingerprint, assert_unchanged, fingerprint
from tasks.download.record import RawData
from tasks.errors import DataError, MillstreamError
from tasks.files import damages, is_completed, lock, read_receipts, verify
from tasks.prepare.base import Arrival, Base
from tasks.prepare.directory import (
    DirectoryPlan,
    find_damages,
    plan_directory,
    repair_directory,
    write_directory,
)
from tasks.prepare.generations import Earlier, data_digest, files_now, find_earlier, shard_directory
from tasks.prepare.manifest import MANIFEST, ShardManifest, Shards, Verification
from tasks.prepare.open import open_source
from tasks.prepare.scan import Scan, kept_scan, scan
from tasks.prepare.threads import num_workers
from tasks.sources import TableSource

REUSED = "there already, nothing written"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}

logger = logging.getLogger("millstream")


def find_digest(name: str, config: DataConfig, source_digest: str, workspace: Path) -> str:
    """Returns the data digest of the shards that `prepare` makes or takes, if nothing is made meanwhile."""
    return data_digest(name, config, source_digest, find_earlier(name, config, source_digest, workspace).sources)


def prepare(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards in data/<digest>/<name>/1.0.0/ of the workspace, whole: written or mended if they were not.

    Mended are only the files that are damaged, missing or foreign, to the same bytes. A second process waits for the
    first and takes its shards. With data.append the shards of files that are there already are linked, not written.
    Raises DataError if the raw data is damaged, a split would lack a class, new files do not fit what they would be
    appended to, or the disk is full.
    """
    earlier = find_earlier(name, config, raw.digest, workspace)
    directory = shard_directory(name, config, (*earlier.sources, raw.digest), workspace)
    request = _Request(name, config, raw, workspace, earlier)
    with _locked(directory):
        try:
            state = _make_whole(directory, request)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise DataError(
                f"{directory.parent}: cannot be written ({os.strerror(error.errno)}); make room or make it writable, "
                "and run again"
            ) from error
    shards = _shards(directory, reused=state == REUSED)
    logger.info("prepare: %d shards in %s, %s", shards.num_shards, directory, state)
    return shards


def find_shards(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards that `prepare` wrote; raises DataError if it has not, or one of its files is damaged."""
    directory = _find(name, config, raw.digest, workspace)
    damaged = [f"{file} ({damage})" for file, damage in damages(directory)]
    if damaged:
        raise DataError(f"{directory}: damaged: {', '.join(damaged)}; mend it with `millstream prepare --repair`")
    return _shards(directory, reused=True)


def verify_shards(name: str, config: DataConfig, source_digest: str, workspace: Path) -> Verification:
    """Returns what is wrong with the shards that `prepare` wrote; writes nothing.

    Raises DataError if there are none, or they were never written to their end.
    """
    directory = _find(name, config, source_digest, workspace)
    return Verification(directory=directory, num_files=len(read_receipts(directory)), damages=find_damages(directory))


def _find(name: str, config: DataConfig, source_digest: str, workspace: Path) -> Path:
    earlier = find_earlier(name, config, source_digest, workspace)
    directory = shard_directory(name, config, (*earlier.sources, source_digest), workspace)
    if not directory.exists():
        raise DataError(f"{directory}: no shards for this config; write them with `millstream prepare`")
    return directory


class _Request(NamedTuple):
    """What `prepare` was asked for."""

    name: str
    config: DataConfig
    raw: RawData
    workspace: Path
    earlier: Earlier


def _locked(directory: Path) -> AbstractContextManager[None]:
    """Returns the lock of a shard directory, data/.<digest>.lock."""
    digest = directory.parents[1]
    return lock(digest.with_name(f".{digest.name}.lock"))


def _make_whole(directory: Path, request: _Request) -> str:
    """Writes what the directory lacks, and returns in words what that was."""
    try:
        damaged = find_damages(directory)
    except DataError as error:
        if directory.parent.exists():  # somebody began to write: it is said why that is not enough
            logger.warning("%s; doing so now", error)
        if request.earlier.why_anew is not None:
            logger.warning("prepare: data.append: %s", request.earlier.why_anew)
        with _planned(directory, request) as plan:
            write_directory(directory, plan)
        return "written"
    if not damaged:
        return REUSED
    for file, damage in damaged.items():
        logger.warning("%s: %s; mending it now", directory / file, damage)
    with _planned(directory, request) as plan:
        repair_directory(directory, plan, damaged)
    return f"{len(damaged)} file(s) mended"


@contextmanager
def _planned(directory: Path, request: _Request) -> Iterator[DirectoryPlan]:
    """Yields the plan of the directory; the examples lie encoded beside it, in a folder that goes with the block.

    If the block is interrupted or fails, the folder stays, so that the next process need not read the source again.
    """
    folder = directory.with_name(f"{directory.name}.scan")
    with _arrived(directory, request) as arrival:
        scanned = kept_scan(folder)
        if scanned is None:
            shutil.rmtree(folder, ignore_errors=True)  # a killed process's, or of no use any more
            folder.mkdir(parents=True)
            try:
                scanned = _scan(folder, request, arrival)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        else:
            logger.info("prepare: going on from the examples that an interrupted process read")
        try:
            plan = plan_directory(
                request.name,
                request.config,
                scanned,
                data_digest=directory.parents[1].name,
                source_digest=request.raw.digest,
                arrival=arrival,
            )
        except MillstreamError:  # mended in the config, which gives the shards another name
            shutil.rmtree(folder)
            raise
        yield plan
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _arrived(directory: Path, request: _Request) -> Iterator[Arrival | None]:
    """Yields what is to be appended to what, which is whole and stays so meanwhile; None without data.append."""
    config, raw, workspace = request.config, request.raw, request.workspace
    if not config.append:
        yield None
        return
    files = files_now(config, raw.digest, workspace).sha256
    if not request.earlier.sources:
        yield Arrival(files, None)
        return
    there = shard_directory(request.name, config, request.earlier.sources, workspace)
    with _locked(there):
        if not is_completed(there):
            raise DataError(
                f"{directory}: cannot be mended, for {there}, to which it was appended, is gone; delete {directory} "
                "and run again: all shards are then written anew"
            )
        verify(there)
        yield Arrival(files, Base.read(there))


def _scan(folder: Path, request: _Request, arrival: Arrival | None) -> Scan:
    config, raw = request.config, request.raw
    before = _before_reading(raw, request.workspace)
    base, part = (None, None) if arrival is None else (arrival.base, arrival.part)
    source = open_source(config, raw, part)
    if base is not None:
        base.check_schema(source.schema)
    scanned = scan(
        source,
        folder,
        seed=config.seed,
        max_bad_fraction=config.max_bad_fraction,
        num_threads=num_workers(config),
        texts=config.text is not None,
        may_be_empty=base is not None,
    )
    if base is not None and isinstance(config.source, TableSource) and config.source.id is not None:
        base.check_keys(scanned)
    if before is not None:
        assert_unchanged(before)
    scanned.keep()
    return scanned


def _before_reading(raw: RawData, workspace: Path) -> Fingerprint | None:
    """Returns what a user's own files must still be after they were read; None for ours.

    Raises DataError if they are not those that the digest of the shards vouches for.
    """
    if raw.fetched:
        verify(raw.directory)
        return None
    before = fingerprint(raw.directory, raw.pattern, workspace)
    if before.digest != raw.digest:
        raise DataError(f"{raw.directory}: has changed since this command began; give it again")
    return before


def _shards(directory: Path, *, reused: bool) -> Shards:
    manifest = ShardManifest.read(directory / MANIFEST)
    splits = manifest.splits
    return Shards(
        directory=directory,
        data_digest=manifest.data_digest,
        num_shards=sum(len(split.shards) for split in splits.values()),
        num_examples={name: split.num_examples for name, split in splits.items()},
        num_bad=manifest.num_bad,
        reused=reused,
    )
