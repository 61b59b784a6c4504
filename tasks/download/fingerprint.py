"""Fingerprint: what a folder's files hold, cached so that unchanged files are not read again."""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tasks.download.listing import Listing, list_files
from tasks.errors import DataError
from tasks.files import digest_file, digest_json, write_atomic
from tasks.progress import progress

# A file that changed so lately may change again without a new time: file systems count time in steps of up to 2 s.
YOUNG_SECONDS = 2.0
_FORMAT = 1

logger = logging.getLogger("millstream")

Stamp = tuple[int, int, int, int]
"""Size in bytes, time of the last change of the content in ns, inode, time of the last change of any kind in ns."""


@dataclass(frozen=True)
class Fingerprint:
    """The selected files of a folder as they were when they were looked at."""

    directory: Path
    pattern: str | None
    listing: Listing
    stamps: Mapping[str, Stamp]
    sha256: Mapping[str, str]
    """Of each file, in the order of the listing."""
    young: frozenset[str]
    """Files whose stamp proves nothing, because they had only just been written."""

    @property
    def digest(self) -> str:
        """sha256 over names and contents: the same for the same files anywhere."""
        return digest_json(dict(self.sha256))

    @property
    def size_bytes(self) -> int:
        return sum(stamp[0] for stamp in self.stamps.values())


def fingerprint(directory: Path, pattern: str | None, workspace: Path) -> Fingerprint:
    """Returns the fingerprint of the files that `list_files` selects; reads only those that changed since the last.

    The digests are cached in raw/.fingerprints/ of the workspace, also if the reading is interrupted. Raises DataError
    like `list_files`, and if a file cannot be read.
    """
    listing = list_files(directory, pattern)
    cache = workspace / "raw" / ".fingerprints" / f"{digest_json([str(directory), pattern])}.json"
    known = _load_cache(cache)
    stamps = _stamps(directory, listing.files)
    sha256 = {file: known[file][1] for file, stamp in stamps.items() if file in known and known[file][0] == stamp}
    if len(sha256) == len(stamps):
        return Fingerprint(directory, pattern, listing, stamps, sha256, frozenset())
    young = {file for file in stamps if file not in sha256 and _is_young(stamps[file])}
    try:
        _read(directory, stamps, sha256)
    finally:
        _save_cache(cache, {file: (stamps[file], sha256[file]) for file in sha256 if file not in young})
    in_order = {file: sha256[file] for file in stamps}
    return Fingerprint(directory, pattern, listing, stamps, in_order, frozenset(young))


def assert_unchanged(before: Fingerprint) -> None:
    """Raises DataError that names the first file that appeared, vanished or changed since `before`.

    To be called after the files were read: what was read is then what `before.digest` stands for.
    """
    now = list_files(before.directory, before.pattern)
    for file in sorted({*now.files} ^ {*before.stamps}):
        _refuse(before.directory / file, "appeared" if file in now.files else "vanished")
    stamps = _stamps(before.directory, now.files)
    for file, then in before.stamps.items():
        stamp = stamps[file]
        if stamp[:3] != then[:3]:
            _refuse(before.directory / file, "changed")
        # A new name or new rights alone change no content, and the stamp of a young file proves nothing.
        if (stamp != then or file in before.young) and _digest(before.directory, file) != before.sha256[file]:
            _refuse(before.directory / file, "changed")


def _refuse(file: Path, what: str) -> None:
    raise DataError(f"{file}: {what} while it was read; run again when nothing writes there any more")


def _read(directory: Path, stamps: Mapping[str, Stamp], sha256: dict[str, str]) -> None:
    """Adds the sha256 of the files that have none yet."""
    missing = [file for file in stamps if file not in sha256]
    total_bytes, done_bytes = sum(stamps[file][0] for file in missing), 0
    threads = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        with progress(f"download: fingerprint of {len(missing)} file(s)") as advance:
            for file, digest in zip(missing, threads.map(lambda file: _digest(directory, file), missing), strict=True):
                sha256[file] = digest
                done_bytes += stamps[file][0]
                advance(done_bytes, total_bytes)
    finally:
        threads.shutdown(cancel_futures=True)
    for file, stamp in _stamps(directory, missing).items():
        if stamp != stamps[file]:  # written meanwhile: the digest belongs to no state of the file
            del sha256[file]
            _refuse(directory / file, "changed")


def _stamps(directory: Path, files: Sequence[str]) -> dict[str, Stamp]:
    stamps = {}
    folder = f"{directory}{os.sep}"
    for file in files:
        try:
            status = os.stat(folder + file)
        except OSError as error:
            raise DataError(f"{directory / file}: cannot be read ({error.strerror})") from error
        stamps[file] = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
    return stamps


def _is_young(stamp: Stamp) -> bool:
    return max(stamp[1], stamp[3]) > time.time_ns() - YOUNG_SECONDS * 1e9


def _digest(directory: Path, file: str) -> str:
    try:
        return digest_file(directory / file)
    except OSError as error:
        raise DataError(f"{directory / file}: cannot be read ({error.strerror})") from error


def _load_cache(cache: Path) -> dict[str, tuple[Stamp, str]]:
    """Returns stamp and sha256 of each file in the cache; a damaged cache is as good as none."""
    try:
        columns = json.loads(cache.read_bytes())
        if columns["format"] != _FORMAT:
            return {}
        stamps = zip(*columns["stamps"], strict=True)
        return dict(zip(columns["files"], zip(stamps, columns["sha256"], strict=True), strict=True))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s: damaged (%s); the files are read again", cache, error)
        return {}


def _save_cache(cache: Path, known: Mapping[str, tuple[Stamp, str]]) -> None:
    columns = {
        "format": _FORMAT,
        "files": list(known),
        "stamps": [[stamp[index] for stamp, _ in known.values()] for index in range(4)],
        "sha256": [sha256 for _, sha256 in known.values()],
    }
    write_atomic(cache, json.dumps(columns, separators=(",", ":")).encode())
