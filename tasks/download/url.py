"""The raw directory of a URL: fetched, unpacked and whole."""

import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tasks.download.archive import TooLarge, archive_kind, unpack
from tasks.download.fetch import Fetched, fetch
from tasks.download.fingerprint import fingerprint
from tasks.download.listing import list_files, log_ignored
from tasks.download.record import RawData, receipts_digest
from tasks.errors import DataError
from tasks.files import Receipt, atomic_directory, digest_file, digest_json, lock, read_receipts
from tasks.size import Size
from tasks.sources import Located

logger = logging.getLogger("millstream")


def url_digest(source: Located, workspace: Path) -> str:
    """Returns `RawData.digest` of a URL that was fetched; raises DataError if it was not, or is damaged."""
    directory = _directory(source, workspace)
    if not directory.exists():
        raise DataError(f"{directory}: not fetched yet; fetch it with `millstream download`")
    return receipts_digest(_verified(directory, workspace))


def download_url(source: Located, workspace: Path) -> RawData:
    """Returns the files of a URL in raw/<digest of URL and sha256>/ of the workspace, those of an archive unpacked.

    What is there whole is taken without a network, whatever the URL holds by now: delete the directory, or change
    data.source.sha256, to fetch it anew. What is damaged is fetched again. Raises DataError and ConfigError
    like `fetch` and `unpack`.
    """
    directory = _directory(source, workspace)
    with lock(directory.with_name(f".{directory.name}.lock")):
        receipts = _find(directory, workspace)
        reused = receipts is not None
        if receipts is None:
            _fetch(source, directory)
            receipts = read_receipts(directory)
    return RawData.of_receipts(directory, receipts, receipts_digest(receipts), reused=reused)


def _directory(source: Located, workspace: Path) -> Path:
    return workspace / "raw" / digest_json({"url": source.path, "sha256": source.sha256})


def _find(directory: Path, workspace: Path) -> dict[str, Receipt] | None:
    """Returns what is there if it is whole; a warning says why it is about to be fetched again."""
    if not directory.exists():
        return None
    try:
        return _verified(directory, workspace)
    except DataError as error:
        logger.warning("%s; fetching it again", error)
        return None


def _verified(directory: Path, workspace: Path) -> dict[str, Receipt]:
    """Returns the receipts of a directory whose files are what they say; raises DataError if one is not.

    Unlike `verify` it reads only files that are new to `fingerprint`: a large set is looked at by every command.
    """
    receipts = read_receipts(directory)
    found = fingerprint(directory, None, workspace).sha256
    for name in sorted({*receipts} | {*found}):
        if name not in receipts or name not in found:
            raise DataError(f"{directory / name}: {'missing' if name in receipts else 'not one of its files'}")
        if found[name] != receipts[name].sha256:
            raise DataError(f"{directory / name}: content has changed since it was written")
    return receipts


def _fetch(source: Located, directory: Path) -> None:
    """Writes the directory; what was fetched stays if it cannot be finished for a reason that may pass."""
    work = directory.parent / ".fetching" / directory.name
    fetched = fetch(source.path, work / "files", sha256=source.sha256)
    if len(fetched) == 1 and archive_kind(fetched[0].name) is not None:
        try:
            files, sha256 = _unpack(fetched[0], work / "unpacked", source.max_unpacked)
        except TooLarge:  # a larger limit needs no second fetch
            raise
        except DataError:  # another fetch may bring a better one
            fetched[0].remove()
            raise
    else:
        files = {one.name: one.file for one in fetched}
        # Now, because an interruption below costs what was fetched.
        sha256 = {one.name: source.sha256 or digest_file(one.file) for one in fetched}
    with atomic_directory(directory, digests=sha256) as incomplete:
        for name, file in files.items():
            (incomplete / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, incomplete / name)
    shutil.rmtree(work)


def _unpack(archive: Fetched, directory: Path, limit: Size) -> tuple[dict[str, Path], dict[str, str]]:
    """Returns place and sha256 of each file of an archive, by its name in the raw directory."""
    shutil.rmtree(directory, ignore_errors=True)
    unpacked = unpack(archive.file, archive.name, directory, limit=limit)
    listing = list_files(directory, None)
    log_ignored(listing)
    wrapping = _wrapping(listing.files)
    files = {name.removeprefix(wrapping): directory / name for name in listing.files}
    return files, {name: unpacked[wrapping + name] for name in files}


def _wrapping(names: Sequence[str]) -> str:
    """Returns 'folder/' if all files of an archive lie in one folder, for that is the archive's name and no class.

    A folder column=value is data and no name.
    """
    tops = {name.partition("/")[:2] for name in names}
    top, slash = min(tops)
    return f"{top}/" if len(tops) == 1 and slash and "=" not in top else ""
