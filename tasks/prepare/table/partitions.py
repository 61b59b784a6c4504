"""Partitions: folders named column=value, which add that column to the files in them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

import pyarrow as pa

from tasks.errors import DataError
from tasks.prepare.manifest import INT64
from tasks.prepare.table.literals import matches
from tasks.prepare.table.rows import Rows, TableFiles
from tasks.sources import ColumnType

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for a value that is missing."""


class Partitioned:
    """The files of a table with the columns that their folders name."""

    def __init__(self, files: TableFiles) -> None:
        """Raises DataError if the folders of the files do not fit each other or the files' own columns."""
        self._files, self._added = files, partitions(list(files.types))
        self.notes = files.notes
        for file, added in self._added.items():
            if both := added.keys() & files.types[file].keys():
                raise DataError(f"{file}: has a column {min(both)!r} and a folder {min(both)}=...; rename one of them")
        self.types = {
            file: {**types, **{name: value.type for name, value in self._added[file].items()}}
            for file, types in files.types.items()
        }

    def infer(self, names: Sequence[str]) -> dict[str, ColumnType]:
        """Returns what the files say of their own columns."""
        return self._files.infer([name for name in names if any(name in types for types in self._files.types.values())])

    def read(self, file: str, names: Sequence[str]) -> Iterator[Rows]:
        """Yields the rows of a file with the columns `names`."""
        added = self._added[file]
        own = [name for name in names if name not in added] or list(self._files.types[file])[:1]
        for rows in self._files.read(file, own):
            repeated = {name: pa.repeat(value, len(rows.numbers)) for name, value in added.items() if name in names}
            yield replace(rows, columns={**rows.columns, **repeated})


def partitions(files: Sequence[str]) -> dict[str, dict[str, pa.Scalar]]:
    """Returns the value of each partition column, by file and column: int64 if all are whole numbers, else strings.

    Raises DataError if the files do not lie in folders of the same columns.
    """
    texts = {file: _of(file) for file in files}
    columns = list(next(iter(texts.values()), {}))
    for file, found in texts.items():
        if list(found) != columns:
            raise DataError(
                f"{file}: lies in folders of the columns {list(found)}, but {files[0]} of {columns}; give all files "
                f"folders of the same columns, in the same order"
            )
    types = {column: _type([found[column] for found in texts.values()]) for column in columns}
    return {
        file: {column: pa.scalar(_value(text, types[column]), types[column]) for column, text in found.items()}
        for file, found in texts.items()
    }


def _of(file: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for folder in file.split("/")[:-1]:
        column, equals, text = folder.partition("=")
        if equals and column:
            if column in found:
                raise DataError(f"{file}: has two folders {column}=...; rename one of them")
            found[column] = None if text == MISSING else unquote(text)
    return found


def _type(texts: Sequence[str | None]) -> pa.DataType:
    values = [text for text in texts if text is not None]
    ints = matches(pa.array(values, pa.string()), r"^-?(0|[1-9]\d*)$")  # 01 stays text, as everywhere
    return pa.int64() if ints.all() and all(int(text) in INT64 for text in values) else pa.string()


def _value(text: str | None, type: pa.DataType) -> int | str | None:
    return int(text) if text is not None and pa.types.is_integer(type) else text
