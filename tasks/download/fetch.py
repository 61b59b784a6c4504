"""Fetch: remote files to local disk, going on where a cut left them."""

import logging
import os
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from tasks.download.remote import Opened, Remote, connect, is_final, is_of_the_network
from tasks.errors import ConfigError, DataError, needs_the_user
from tasks.files import Record, digest_file
from tasks.progress import Advance, progress
from tasks.secrets import hide_secrets

TRIES = 8  # in a row that brought less than _PROGRESS_BYTES
BACKOFF_SECONDS = 1.0  # before the second try; doubled before each further one
_MAX_BACKOFF_SECONDS = 60.0
_PROGRESS_BYTES = 8_000_000
_CHUNK_BYTES = 1 << 20

logger = logging.getLogger("millstream")
_Result = TypeVar("_Result")


class PartMark(Record):
    """What is known of the file that a .part is a part of; it lies beside the .part."""

    url: str
    """Without secrets, for a person who looks."""
    size_bytes: int | None
    version: str | None
    complete: bool


@dataclass(frozen=True)
class Fetched:
    """A file that is complete on local disk."""

    name: str
    """Below the URL's folder; for one file, its name."""
    file: Path

    def remove(self) -> None:
        """Removes it, so that the next command fetches it again."""
        self.file.unlink()
        _mark_of(self.file).unlink()


def fetch(url: str, folder: Path, *, sha256: str | None) -> list[Fetched]:
    """Returns the files that a URL names, complete in `folder`, as NAME.part with a mark beside.

    What a former call left there is gone on with if the server can and the file is still the same, or sha256 will tell.
    Tries again after errors of the network, up to TRIES times in a row without progress, then raises DataError and
    keeps what is there. Raises DataError at once if a file is not there, is refused or has another sha256 than it
    should, ConfigError if the URL cannot be right.
    """
    where = hide_secrets(url)
    remote = _with_retries(where, lambda: connect(url), lambda: 0)
    if sha256 is not None and len(remote.names) != 1:
        raise ConfigError(f"data.source.sha256: is of one file, but {where} is {len(remote.names)}; leave it out")
    fetched = [Fetched(name, folder / f"{name}.part") for name in remote.names]
    with progress(f"download: {where.rpartition('/')[2] or where}") as advance:
        done = 0
        for one in fetched:
            one.file.parent.mkdir(parents=True, exist_ok=True)
            _fetch_file(
                remote, one, where, _after(done, advance, only=len(fetched) == 1), resume_anyway=sha256 is not None
            )
            done += _size(one.file)
    if sha256 is not None:
        found = digest_file(fetched[0].file)
        if found != sha256:
            fetched[0].remove()
            raise DataError(
                f"{where}: has sha256 {found}, not {sha256} as data.source.sha256 says; "
                "it was removed: run again, or correct the one in the config"
            )
    return fetched


def _fetch_file(remote: Remote, one: Fetched, where: str, advance: Advance, *, resume_anyway: bool) -> None:
    where = where if len(remote.names) == 1 else f"{where}: {one.name}"
    _with_retries(
        where,
        lambda: _try(remote, one, where, advance, resume_anyway=resume_anyway),
        lambda: _size(one.file),
    )


def _try(remote: Remote, one: Fetched, where: str, advance: Advance, *, resume_anyway: bool) -> None:
    part, mark = one.file, _read_mark(one.file)
    size = _size(part)
    if mark is not None and mark.complete and part.exists() and mark.size_bytes in (None, size):
        return
    version = mark.version if mark is not None else None
    # Without a version two halves might be of two files, and only a sha256 would tell.
    start = size if _is_part(mark, size) and (version is not None or resume_anyway) else 0
    try:
        with remote.open(one.name, start=start, version=version) as opened:
            _take(opened, part, mark, where, advance)
        _write_mark(part, where, opened, complete=True)  # now that the other side did not change to the end
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        _mark_of(part).unlink()
        raise ConnectionError(f"the server has no more than {start} bytes, though it had named more") from None


def _take(opened: Opened, part: Path, mark: PartMark | None, where: str, advance: Advance) -> None:
    """Writes what arrives behind what is there, or anew; raises ConnectionError if it is not the whole file then."""
    if opened.start:
        assert mark is not None
        if opened.size_bytes != mark.size_bytes:
            _mark_of(part).unlink()
            raise ConnectionError(f"its size is now {opened.size_bytes} bytes, not {mark.size_bytes}")
        logger.info("download: %s: going on after %d bytes", where, opened.start)
    else:
        part.unlink(missing_ok=True)  # before the mark, which must not describe another file's bytes
        _write_mark(part, where, opened, complete=False)
    with open(part, "ab") as file:
        while chunk := opened.stream.read(_CHUNK_BYTES):
            file.write(chunk)
            advance(file.tell(), opened.size_bytes)
        os.fsync(file.fileno())  # before a mark says that it is complete
    size = _size(part)
    if opened.size_bytes is None:
        logger.warning(
            "download: %s: the server names no length, so that only data.source.sha256 would show a cut", where
        )
    elif size != opened.size_bytes:
        raise ConnectionError(f"cut after {size} of {opened.size_bytes} bytes")


def _with_retries(where: str, action: Callable[[], _Result], size: Callable[[], int]) -> _Result:
    """Returns what the action returns; an error of the network is followed by another try, after a while."""
    tries, furthest = 0, size()
    while True:
        try:
            return action()
        except Exception as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            said = hide_secrets(str(error)) or type(error).__name__
            if needs_the_user(error) or not is_of_the_network(error):
                raise
            if is_final(error):
                raise DataError(f"{where}: {said}; correct data.source.path or the credentials") from None
        tries = 1 if size() >= furthest + _PROGRESS_BYTES else tries + 1
        furthest = max(furthest, size())
        if tries == TRIES:
            raise DataError(
                f"{where}: not fetched in {TRIES} tries, at last because of: {said}; "
                "what is here is kept, and the same command goes on from it"
            )
        seconds = min(BACKOFF_SECONDS * 2 ** (tries - 1), _MAX_BACKOFF_SECONDS)
        logger.warning("download: %s: %s; try %d of %d in %g s", where, said, tries + 1, TRIES, seconds)
        time.sleep(seconds)


def _after(done_bytes: int, advance: Advance, *, only: bool) -> Advance:
    """Returns the progress of one file of several: bytes over all of them, whose total is not known."""
    return lambda more, total: advance(done_bytes + more, total if only else None)


def _mark_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _write_mark(part: Path, where: str, opened: Opened, *, complete: bool) -> None:
    mark = PartMark(url=where, size_bytes=opened.size_bytes, version=opened.version, complete=complete)
    mark.write(_mark_of(part))


def _read_mark(part: Path) -> PartMark | None:
    if not _mark_of(part).exists():
        return None
    try:
        return PartMark.read(_mark_of(part))
    except DataError as error:
        logger.warning("%s; fetching from the start", error)
        return None


def _is_part(mark: PartMark | None, size_bytes: int) -> bool:
    return mark is not None and mark.size_bytes is not None and size_bytes < mark.size_bytes


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
