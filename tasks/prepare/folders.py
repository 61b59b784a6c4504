"""FolderPlan: which class and which split each file of a source of class folders belongs to."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tasks.config import DataConfig
from tasks.download.listing import natural_key
from tasks.errors import ConfigError, DataError
from tasks.prepare.groups import group_of
from tasks.prepare.labels import given_classes, natural_order
from tasks.prepare.manifest import BadExample
from tasks.prepare.remarks import Remarks
from tasks.prepare.source import Batch, Column, Part
from tasks.prepare.wording import count, some
from tasks.sources import ImageFolderSource, TextFolderSource
from tasks.splits import FileSplits, FractionSplits, GroupSplits, NamedSplits, OfficialSplits, TimeSplits

BATCH_BYTES = 16_000_000
_SPLIT_NAMES = {"train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing"}


@dataclass(frozen=True)
class FolderFile:
    """One file of a class folder: one example."""

    path: str
    """Below the source, with '/'."""
    label: int
    """Index into the label map."""
    split_by: str | None
    """What data.splits goes by; None for fraction."""
    bad: str | None = None
    """Why the file cannot be used whatever it holds, as the end of a sentence."""


@dataclass(frozen=True)
class FolderPlan:
    """The files of a source in their order, and the one label map for all splits."""

    files: tuple[FolderFile, ...]
    label_map: tuple[str, ...]
    has_split_by: bool
    """False for fraction, which goes by the key."""
    notes: tuple[str, ...]
    first_row: int = 0
    """Of the first file."""

    def only(self, part: Part | None) -> "FolderPlan":
        """Returns the plan of the files of a part; of all of them without one."""
        if part is None:
            return self
        files = tuple(file for file in self.files if file.path in part.files)
        return replace(self, files=files, first_row=part.first_row)


def plan_folders(
    files: Sequence[str], config: DataConfig, *, unusable: Collection[str] = (), empty: Iterable[str] = ()
) -> FolderPlan:
    """Returns class, label and split of every file, in the order of `files`; reads nothing.

    The class is the first folder of a file's path, or the second with official splits, whose first is the split. What
    lies deeper belongs to that class. Labels follow `data.source.classes`, else the names with numbers as numbers.
    `unusable` are class folders to leave out, as they are in the paths (`cat` or `train/cat`), `empty` those without a
    file. Whatever is left out is counted and named in the notes.

    Raises ConfigError if no file is in a class folder, there are fewer than two classes, folders are not in `classes`,
    official splits are not there or not asked for, or data.splits goes by what a file does not have.
    """
    source = config.source
    assert isinstance(source, ImageFolderSource | TextFolderSource)
    _check_splits(config)
    depth = _depth(config)
    paths = [tuple(file.split("/")) for file in files]
    left_out = Remarks("file")
    if isinstance(config.splits, OfficialSplits):
        taken = _official(config.splits, paths)
    else:
        taken = []
        _refuse_unasked_splits(paths)
    in_class = []
    for path, file in zip(paths, files, strict=True):
        if len(path) <= depth:
            left_out.add("in no class folder: left out", file)
        elif taken and path[0] not in taken:
            left_out.add(f"in folders that are no split of data.splits ({', '.join(taken)}): left out", file)
        elif "/".join(path[:depth]) in unusable:
            left_out.add(f"in folders without {_NOUNS[source.kind]}, which are no classes: left out", file)
        else:
            in_class.append(path)
    found = {path[depth - 1] for path in in_class}
    label_map = _label_map(source, natural_order(found), len(files))
    labels = {name: label for label, name in enumerate(label_map)}
    planned = tuple(_plan(path, labels[path[depth - 1]], config) for path in in_class)
    notes = left_out.notes()
    if folders := sorted(empty, key=natural_key):
        notes += (f"{count(len(folders), 'folder')} without a file: no class, left out ({some(folders)})",)
    if unseen := [name for name in label_map if name not in found]:
        notes += (f"{count(len(unseen), 'class', 'classes')} of data.source.classes without a file ({some(unseen)})",)
    return FolderPlan(planned, label_map, not isinstance(config.splits, FractionSplits), notes)


def empty_folders(directory: Path, files: Iterable[str], config: DataConfig) -> list[str]:
    """Returns the folders where classes are looked for that hold no file at all, hidden ones apart."""
    full = {"/".join(file.split("/")[:-1][:deep]) for file in files for deep in range(1, _depth(config) + 1)}
    found: list[str] = []
    for pattern in ("*", "*/*")[: _depth(config)]:
        for path in directory.glob(pattern):
            name = path.relative_to(directory).as_posix()
            if path.is_dir() and name not in full and not re.search(r"(^|/)(\.|__MACOSX)", name):
                found.append(name)
    return [name for name in found if name.rpartition("/")[0] not in found]


def class_folder(file: str, config: DataConfig) -> str:
    """Returns the class folder of a file as it is in the path: `cat`, or `train/cat` with official splits."""
    return "/".join(file.split("/")[:-1][: _depth(config)])


def batches(
    plan: FolderPlan,
    name: str,
    values: Iterable[bytes | str],
    as_column: Callable[[list[bytes]], Column] = lambda values: values,
) -> Iterator[Batch]:
    """Yields the files of a plan as batches of one feature, about 16 MB at once, cut alike every time.

    `values`: of each file that the plan does not call bad, its bytes or why there are none (str).
    """
    remaining = iter(values)
    rows: list[int] = []
    good: list[bytes] = []
    bad: list[BadExample] = []
    size_bytes = 0

    def batch() -> Batch:
        files = [plan.files[row] for row in rows]
        split_by = [file.split_by for file in files if file.split_by is not None]
        return Batch(
            rows=plan.first_row + np.array(rows, np.int64),
            keys=[file.path for file in files],
            labels=np.array([file.label for file in files], np.int64),
            columns={name: as_column(good)},
            split_by=split_by if plan.has_split_by else None,
            bad=tuple(bad),
        )

    for row, file in enumerate(plan.files):
        value = file.bad or next(remaining)
        if isinstance(value, str):
            bad.append(BadExample(path=file.path, reason=value))
            continue
        rows.append(row)
        good.append(value)
        size_bytes += len(value)
        if size_bytes >= BATCH_BYTES:
            yield batch()
            rows, good, bad, size_bytes = [], [], [], 0
    if rows or bad:
        yield batch()
    assert next(remaining, None) is None  # and what comes after the last file is done


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Yields an open file; raises DataError if it cannot be opened or read: of that no example is to blame."""
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); mend or remove it, and run again") from error


_NOUNS = {"image_folder": "an image", "text_folder": "a text"}


def _depth(config: DataConfig) -> int:
    """Returns how many folders stand above a file of a class, the class folder included."""
    return 2 if isinstance(config.splits, OfficialSplits) else 1


def _check_splits(config: DataConfig) -> None:
    """Raises ConfigError if data.splits goes by what no file has."""
    if isinstance(config.splits, TimeSplits):
        raise ConfigError(
            f"data.splits.kind=time: the files of data.source.kind={config.source.kind} have no column of times (the "
            "time of a file is lost whenever it is copied); use fraction, official, group or file"
        )
    if isinstance(config.splits, GroupSplits) and config.splits.column != "path":
        raise ConfigError(
            f"data.splits.column={config.splits.column}: data.source.kind={config.source.kind} has no columns; set "
            "it to path, and data.splits.pattern to what names the group in it, such as 'patient([0-9]+)'"
        )


def _official(splits: NamedSplits, paths: Sequence[Sequence[str]]) -> list[str]:
    """Returns the first folders that are splits; raises ConfigError if the config names one that is not there."""
    there = sorted({path[0] for path in paths if len(path) > 1}, key=natural_key)
    taken = splits.names()
    for split, name in taken.items():
        if name not in there:
            share = "" if split == "train" else ", or a share of train, such as 0.1"
            raise ConfigError(
                f"data.splits.{split}={name}: data.source.path has no such folder with files, it has "
                f"{some(there) or 'none'}; name one of its folders{share}"
            )
    return list(dict.fromkeys(taken.values()))


def _refuse_unasked_splits(paths: Sequence[Sequence[str]]) -> None:
    """Raises ConfigError if folders named like splits hold the same folders: those are the classes, not these."""
    inside: dict[str, set[str]] = {}
    for path in paths:
        if len(path) > 2 and path[0].casefold() in _SPLIT_NAMES:
            inside.setdefault(path[0], set()).add(path[1])
    if len(inside) > 1 and set.intersection(*inside.values()):
        raise ConfigError(
            f"data.source.path: the folders {', '.join(sorted(inside))} hold the same class folders, so that they are "
            "splits and no classes; set data.splits.kind=official, and data.splits.train, .validation and .test to "
            "their names"
        )


def _label_map(source: ImageFolderSource | TextFolderSource, names: Sequence[str], num_files: int) -> tuple[str, ...]:
    if not names:
        raise ConfigError(
            f"data.source.path={source.path}: none of its {count(num_files, 'file')} lies in a class folder; put the "
            "files of each class into a folder of its name (with official splits: <split>/<class>/)"
        )
    classes = tuple(names) if source.classes is None else given_classes(source.classes)
    if outside := [name for name in names if name not in classes]:
        raise ConfigError(
            f"data.source.classes: lacks {count(len(outside), 'class folder')} of data.source.path ({some(outside)}); "
            "add them, or move them elsewhere"
        )
    if len(classes) < 2:
        raise ConfigError(
            f"data.source.path={source.path}: has only the class folder {classes[0]}, and one class leaves nothing to "
            "tell apart; give the folder that holds the class folders"
        )
    return classes


def _plan(path: Sequence[str], label: int, config: DataConfig) -> FolderFile:
    file = "/".join(path)
    if isinstance(config.splits, GroupSplits):
        if (group := group_of(file, config.splits.pattern)) is None:
            reason = f"has no group: its path does not match data.splits.pattern={config.splits.pattern}"
            return FolderFile(file, label, "", reason)
        return FolderFile(file, label, group)
    if isinstance(config.splits, OfficialSplits):
        return FolderFile(file, label, path[0])
    return FolderFile(file, label, file if isinstance(config.splits, FileSplits) else None)
