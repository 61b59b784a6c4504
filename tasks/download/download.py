"""The raw directory: a source's files, copied to local disk and verified."""

import logging
import shutil
from pathlib import Path

from tasks.config import DataConfig
from tasks.download.digits import find_digits
from tasks.download.record import RawData
from tasks.files import atomic_directory, digest_file, digest_json, is_whole, lock

logger = logging.getLogger("millstream")


def source_digest(config: DataConfig) -> str:
    """Returns `RawData.digest` of a source without fetching it; raises DataError if the source has no such files."""
    return digest_json({file.name: digest_file(file) for file in [find_digits()]})


def download(config: DataConfig, workspace: Path) -> RawData:
    """Returns the source's files in raw/<digest>/ of the workspace, fetched unless they are there and whole.

    A damaged directory is fetched again. Raises DataError if the source has no such files.
    """
    files = [find_digits()]
    digest = source_digest(config)
    directory = workspace / "raw" / digest
    size_bytes = sum(file.stat().st_size for file in files)
    with lock(directory.with_name(f".{digest}.lock")):
        reused = directory.exists() and is_whole(directory)
        if not reused:
            with atomic_directory(directory) as incomplete:
                for file in files:
                    shutil.copyfile(file, incomplete / file.name)
    logger.info(
        "download: %s, %d file(s), %d bytes, %s",
        config.source.kind,
        len(files),
        size_bytes,
        "there already" if reused else "fetched",
    )
    return RawData(
        directory=directory,
        pattern=None,
        fetched=True,
        digest=digest,
        num_files=len(files),
        size_bytes=size_bytes,
        reused=reused,
    )
