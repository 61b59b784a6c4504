"""Listing: the files that a source selects, in natural order, and what was left out."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path

from tasks.errors import DataError
from tasks.files import COMPLETED

# What systems and tools leave beside data, and nobody means by naming a folder.
_JUNK = {"__macosx", "thumbs.db", "desktop.ini", "_success", "_metadata", "_common_metadata"}
_PART = ".part"  # of a download, ours or a browser's
_ANYTHING = "**"
_DIGITS = re.compile("([0-9]+)")

logger = logging.getLogger("millstream")


@dataclass(frozen=True)
class Listing:
    """The files of a folder, as paths below it with '/' between their parts."""

    files: tuple[str, ...]
    """What is selected, in natural order: folder by folder, '2' before '10'."""
    ignored: tuple[str, ...]
    """Junk that the pattern would have selected, in the same order; a folder ends with '/'."""


@dataclass(frozen=True)
class _Folder:
    path: str  # below the listed folder; '' is that itself
    states: frozenset[int]  # places in the pattern where it may go on below
    above: frozenset[tuple[int, int]]  # device and inode of the folders it lies in


def natural_key(text: str) -> tuple[object, ...]:
    """Returns a sort key that takes digits as numbers ('2' before '10') and a path by its parts; one for each text."""
    return tuple(_part_key(part) for part in text.split("/"))


def is_junk(name: str) -> bool:
    """Returns whether a file or folder of this name is hidden, made by a system or tool, or half of a download."""
    return name.startswith(".") or name.endswith(_PART) or name.lower() in _JUNK


def list_files(directory: Path, pattern: str | None) -> Listing:
    """Returns the files below a folder that a glob selects; None selects all.

    `**` stands for any number of folders; a folder that matches is taken with all that lies below. Links are followed,
    but not back to a folder they lie in. A junk name is taken only if the pattern spells it out. Raises DataError if
    nothing is selected, a link leads nowhere, or a folder cannot be read.
    """
    parts = [part for part in (pattern or "").split("/") if part] + [_ANYTHING]
    files: list[str] = []
    ignored: list[str] = []
    # A stack of open folders and no recursion: nothing limits how deep they lie.
    open_folders = [_children(directory, _Folder("", _closed({0}, parts), frozenset()), parts, ignored)]
    while open_folders:
        child = next(open_folders[-1], None)
        if child is None:
            open_folders.pop()
        elif isinstance(child, str):
            files.append(child)
        else:
            open_folders.append(_children(directory, child, parts, ignored))
    if not files:
        left_out = f" but {', '.join(ignored[:3])}" if ignored else ""
        raise DataError(f"{directory / (pattern or '')}: holds no files{left_out}; check data.source.path")
    for file in files:
        if not file.isascii() and file.encode(errors="replace").decode() != file:
            raise DataError(f"{directory}: the name {file!r} is not valid UTF-8; rename it")
    return Listing(tuple(files), tuple(sorted(ignored, key=natural_key)))


def log_ignored(listing: Listing) -> None:
    """Logs how many files and folders a listing leaves out, and the first; nothing if there are none."""
    if ignored := listing.ignored:
        logger.info("download: left out %d hidden or system file(s), such as %s", len(ignored), ignored[0])


def _children(directory: Path, folder: _Folder, parts: list[str], ignored: list[str]) -> Iterator[str | _Folder]:
    """Yields the files of a folder that the pattern selects, and the folders where it goes on, in natural order."""
    place = os.path.join(directory, folder.path)
    try:
        with os.scandir(place) as found:
            entries = sorted(found, key=lambda entry: _part_key(entry.name))
        status = os.stat(place)
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({error.strerror})") from error
    above = folder.above | {(status.st_dev, status.st_ino)}
    for entry in entries:
        name, is_folder = entry.name, entry.is_dir()
        states = _after(name, folder.states, parts)
        if not states or not (is_folder or len(parts) in states):
            continue
        path = f"{folder.path}/{name}" if folder.path else name
        if name == COMPLETED and not folder.path and not is_folder:
            continue
        if is_junk(name) and escape(name) not in {parts[state] for state in folder.states if state < len(parts)}:
            ignored.append(path + "/" * is_folder)
        elif is_folder:
            inside = entry.stat()
            if (inside.st_dev, inside.st_ino) in above:
                ignored.append(f"{path}/")
            else:
                yield _Folder(path, states, above)
        elif entry.is_file():
            yield path
        elif entry.is_symlink():
            raise DataError(f"{os.path.join(directory, path)}: a link to {os.readlink(entry)}, which is not there")
        else:  # a pipe, a socket or a device
            ignored.append(path)


def _after(name: str, states: frozenset[int], parts: list[str]) -> frozenset[int]:
    """Returns the places in the pattern after a name, from the places before it; none: the pattern does not match."""
    if states == {len(parts) - 1, len(parts)}:  # only the `**` at the end is left; most names by far come here
        return states
    after = set()
    for state in states:
        if state < len(parts):
            if parts[state] == _ANYTHING:
                after.add(state)
            elif fnmatchcase(name, parts[state]):
                after.add(state + 1)
    return _closed(after, parts)


def _closed(states: set[int], parts: list[str]) -> frozenset[int]:
    """Returns the places with those that follow them over a `**`, which may stand for no folder at all."""
    closed = set(states)
    for state in range(len(parts)):
        if state in closed and parts[state] == _ANYTHING:
            closed.add(state + 1)
    return frozenset(closed)


def _part_key(part: str) -> tuple[object, ...]:
    pieces: list[object] = [*_DIGITS.split(part)]  # text and digits in turn, text first
    for index in range(1, len(pieces), 2):
        digits = str(pieces[index]).lstrip("0")
        pieces[index] = (len(digits), digits)
    return (pieces, part)
