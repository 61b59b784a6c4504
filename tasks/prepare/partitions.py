"""Partitions: folders named column=value, which add that column to the files in them."""

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa

from tasks.errors import DataError
from tasks.prepare.literals import INT64, matches

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""What Hive and Spark write for a value that is missing."""


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
