"""The raw data: a source's files on local disk, verified, fetched only if they are not there."""

import logging
from pathlib import Path

from tasks.config import DataConfig
from tasks.download.digits import digits_digest, download_digits
from tasks.download.local import find_local, local_digest
from tasks.download.place import is_url
from tasks.download.record import RawData
from tasks.sources import DigitsSource, Located

logger = logging.getLogger("millstream")

# URLs and staging bring libraries of their own, so they are imported only where they are needed.


def download(config: DataConfig, workspace: Path) -> RawData:
    """Returns the source's files on local disk: the user's own where they lie, all else in raw/ of the workspace.

    What is in raw/ already and whole is taken, without a network; what is damaged there is fetched again. Raises
    DataError if the source's files are not there or not what they should be, ConfigError if its path cannot be right.
    """
    source = config.source
    if isinstance(source, DigitsSource):
        raw = download_digits(workspace)
    elif not isinstance(source, Located):
        from tasks.download.staging import stage

        raw = stage(config, workspace)
    elif is_url(source.path):
        from tasks.download.url import download_url

        raw = download_url(source, workspace)
    else:
        raw = find_local(source, workspace)
    state = "there already" if raw.reused else "fetched"
    logger.info("download: %s, %d file(s), %d bytes, %s", source.kind, raw.num_files, raw.size_bytes, state)
    return raw


def source_digest(config: DataConfig, workspace: Path) -> str:
    """Returns `RawData.digest` of a source without fetching it.

    Raises DataError if the source's files are not there, or would have to be fetched first.
    """
    source = config.source
    if isinstance(source, DigitsSource):
        return digits_digest()
    if not isinstance(source, Located):
        from tasks.download.staging import staging_digest

        return staging_digest(config)
    if is_url(source.path):
        from tasks.download.url import url_digest

        return url_digest(source, workspace)
    return local_digest(source, workspace)
