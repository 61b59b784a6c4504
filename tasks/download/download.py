"""The raw data: a source's files on local disk, verified, fetched only if they are not there."""

import logging
import shutil
from pathlib import Path

from tasks.config import DataConfig
from tasks.download.archive import archive_kind
from tasks.download.digits import find_digits
from tasks.download.fingerprint import Fingerprint, fingerprint
from tasks.download.place import is_url, locate
from tasks.download.record import RawData
from tasks.errors import ConfigError, DataError
from tasks.files import atomic_directory, digest_file, digest_json, is_whole, lock
from tasks.sources import DigitsSource, Located

logger = logging.getLogger("millstream")


def source_digest(config: DataConfig, workspace: Path) -> str:
    """Returns `RawData.digest` of a source without fetching it.

    Raises DataError if the source's files are not there, or would have to be fetched first.
    """
    source = config.source
    if isinstance(source, DigitsSource):
        return _digits_digest(find_digits())
    if isinstance(source, Located):
        if is_url(source.path):
            from tasks.download.url import url_digest

            return url_digest(source, workspace)
        return _local(source, workspace).digest
    from tasks.download.staging import staging_digest

    return staging_digest(config)


def download(config: DataConfig, workspace: Path) -> RawData:
    """Returns the source's files on local disk: the user's own where they lie, all else in raw/ of the workspace.

    What is in raw/ already and whole is taken, without a network; what is damaged there is fetched again. Raises
    DataError if the source's files are not there or not what they should be, ConfigError if its path cannot be right.
    """
    source = config.source
    if isinstance(source, DigitsSource):
        raw = _download_digits(workspace)
    elif isinstance(source, Located):
        if is_url(source.path):
            from tasks.download.url import download_url

            raw = download_url(source, workspace)
        else:
            raw = _raw_in_place(_local(source, workspace))
    else:
        from tasks.download.staging import stage

        raw = stage(config, workspace)
    state = "there already" if raw.reused else "fetched"
    logger.info("download: %s, %d file(s), %d bytes, %s", source.kind, raw.num_files, raw.size_bytes, state)
    return raw


def _local(source: Located, workspace: Path) -> Fingerprint:
    place = locate(source.path)
    if archive_kind(place.pattern or "") in {"zip", "tar"}:
        raise ConfigError(
            f"data.source.path={source.path}: is an archive; write file://{place.directory / str(place.pattern)} "
            "to have it unpacked into the workspace"
        )
    if place.pattern is None and _meet(place.directory.resolve(), workspace.resolve()):
        raise ConfigError(
            f"data.source.path={source.path}: is a folder that the workspace {workspace} writes to, so that no two "
            "commands would find the same files there; give a folder of the data alone, or set MILLSTREAM_WORKSPACE to "
            "another"
        )
    found = fingerprint(place.directory, place.pattern, workspace)
    if source.sha256 is not None:
        if len(found.sha256) != 1:
            raise ConfigError(
                f"data.source.sha256: is of one file, but {source.path} is {len(found.sha256)}; leave it out"
            )
        ((file, sha256),) = found.sha256.items()
        if sha256 != source.sha256:
            raise DataError(
                f"{place.directory / file}: has sha256 {sha256}, not {source.sha256} as data.source.sha256 says; "
                "correct one of them"
            )
    return found


def _meet(directory: Path, workspace: Path) -> bool:
    """Returns whether a source's folder holds the workspace, or lies where shards are written."""
    return workspace.is_relative_to(directory) or directory.is_relative_to(workspace / "data")


def _raw_in_place(found: Fingerprint) -> RawData:
    ignored = found.listing.ignored
    if ignored:
        logger.info("download: left out %d hidden or system file(s), such as %s", len(ignored), ignored[0])
    return RawData(
        directory=found.directory,
        pattern=found.pattern,
        fetched=False,
        digest=found.digest,
        num_files=len(found.sha256),
        size_bytes=found.size_bytes,
        reused=True,
    )


def _digits_digest(file: Path) -> str:
    return digest_json({file.name: digest_file(file)})


def _download_digits(workspace: Path) -> RawData:
    file = find_digits()
    digest = _digits_digest(file)
    directory = workspace / "raw" / digest
    with lock(directory.with_name(f".{digest}.lock")):
        reused = directory.exists() and is_whole(directory)
        if not reused:
            with atomic_directory(directory) as incomplete:
                shutil.copyfile(file, incomplete / file.name)
    return RawData(
        directory=directory,
        pattern=None,
        fetched=True,
        digest=digest,
        num_files=1,
        size_bytes=file.stat().st_size,
        reused=reused,
    )
