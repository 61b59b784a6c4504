"""The prepare stage: shards that are there and whole are taken, damaged ones mended, missing ones written."""

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tasks.config import DataConfig
from tasks.download.fingerprint import Fingerprint, assert_unchanged, fingerprint
from tasks.download.record import RawData
from tasks.errors import DataError, MillstreamError
from tasks.files import damages, digest_json, lock, read_receipts, verify
from tasks.prepare.directory import (
    VERSION,
    DirectoryPlan,
    find_damages,
    plan_directory,
    repair_directory,
    write_directory,
)
from tasks.prepare.manifest import MANIFEST, ShardManifest, Shards, Verification
from tasks.prepare.open import open_source
from tasks.prepare.scan import Scan, kept_scan, scan
from tasks.prepare.threads import num_workers

FORMAT_VERSION = 4  # to be raised by whoever changes the bytes that the same config and source give
REUSED = "there already, nothing written"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}

logger = logging.getLogger("millstream")


def data_digest(name: str, config: DataConfig, source_digest: str) -> str:
    """Returns 16 hex digits that name the shards of a config and a source: equal digests stand for equal bytes."""
    return digest_json({"name": name, "data": config.identity(), "source": source_digest, "format": FORMAT_VERSION})[
        :16
    ]


def prepare(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards in data/<digest>/<name>/1.0.0/ of the workspace, whole: written or mended if they were not.

    Mended are only the files that are damaged, missing or foreign, to the same bytes. A second process waits for the
    first and takes its shards. Raises DataError if the raw data is damaged, a split would lack a class or the disk is
    full.
    """
    directory, digest = _place(name, config, raw.digest, workspace)
    with lock(workspace / "data" / f".{digest}.lock"):
        try:
            state = _make_whole(directory, _Request(name, config, raw, workspace, digest))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise DataError(
                f"{directory.parent}: cannot be written ({os.strerror(error.errno)}); make room or make it writable, "
                "and run again"
            ) from error
    shards = _shards(directory, digest, reused=state == REUSED)
    logger.info("prepare: %d shards in %s, %s", shards.num_shards, directory, state)
    return shards


def find_shards(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards that `prepare` wrote; raises DataError if it has not, or one of its files is damaged."""
    directory, digest = _place(name, config, raw.digest, workspace)
    _require(directory)
    damaged = [f"{file} ({damage})" for file, damage in damages(directory)]
    if damaged:
        raise DataError(f"{directory}: damaged: {', '.join(damaged)}; mend it with `millstream prepare --repair`")
    return _shards(directory, digest, reused=True)


def verify_shards(name: str, config: DataConfig, source_digest: str, workspace: Path) -> Verification:
    """Returns what is wrong with the shards that `prepare` wrote; writes nothing.

    Raises DataError if there are none, or they were never written to their end.
    """
    directory, _ = _place(name, config, source_digest, workspace)
    _require(directory)
    return Verification(directory=directory, num_files=len(read_receipts(directory)), damages=find_damages(directory))


def _place(name: str, config: DataConfig, source_digest: str, workspace: Path) -> tuple[Path, str]:
    digest = data_digest(name, config, source_digest)
    return workspace / "data" / digest / name / VERSION, digest


def _require(directory: Path) -> None:
    if not directory.exists():
        raise DataError(f"{directory}: no shards for this config; write them with `millstream prepare`")


class _Request(NamedTuple):
    """What `prepare` was asked for."""

    name: str
    config: DataConfig
    raw: RawData
    workspace: Path
    digest: str
    """Of the shards."""


def _make_whole(directory: Path, request: _Request) -> str:
    """Writes what the directory lacks, and returns in words what that was."""
    try:
        damaged = find_damages(directory)
    except DataError as error:
        if directory.parent.exists():  # somebody began to write: it is said why that is not enough
            logger.warning("%s; doing so now", error)
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
    scanned = kept_scan(folder)
    if scanned is None:
        shutil.rmtree(folder, ignore_errors=True)  # a killed process's, or of no use any more
        folder.mkdir(parents=True)
        try:
            scanned = _scan(folder, request)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    else:
        logger.info("prepare: going on from the examples that an interrupted process read")
    try:
        plan = plan_directory(
            request.name, request.config, scanned, data_digest=request.digest, source_digest=request.raw.digest
        )
    except MillstreamError:  # mended in the config, which gives the shards another name
        shutil.rmtree(folder)
        raise
    yield plan
    shutil.rmtree(folder, ignore_errors=True)


def _scan(folder: Path, request: _Request) -> Scan:
    config, raw = request.config, request.raw
    before = _before_reading(raw, request.workspace)
    scanned = scan(
        open_source(config, raw),
        folder,
        seed=config.seed,
        max_bad_fraction=config.max_bad_fraction,
        num_threads=num_workers(config),
        texts=config.text is not None,
    )
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


def _shards(directory: Path, digest: str, *, reused: bool) -> Shards:
    manifest = ShardManifest.read(directory / MANIFEST)
    splits = manifest.splits
    return Shards(
        directory=directory,
        data_digest=digest,
        num_shards=sum(len(split.shards) for split in splits.values()),
        num_examples={name: split.num_examples for name, split in splits.items()},
        num_bad=manifest.num_bad,
        reused=reused,
    )
