"""Staged examples: what a worker's source yields, as Parquet files with a schema, so that it runs only once."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import ConfigError, DataError
from tasks.files import Record
from tasks.prepare.manifest import Dtype, Feature

SCHEMA = "schema.json"
PATTERN = "examples-*.parquet"

# Columns beside the inputs; no input can be named so.
TARGET = "#target"
SPLIT = "#split"  # name of the official split
NUMBER = "#number"  # place in its split (or in all, if the reader names splits), from 1
KEY = "#key"
SPLIT_BY = "#split_by"  # what data.splits.column holds
BAD_COLUMN, BAD_REASON = "#bad_column", "#bad_reason"  # a reason makes the row a bad example

ROW_GROUP_BYTES = 8 * 1024**2
ROW_GROUP_ROWS = 65_536
_FILE_BYTES = 512 * 1024**2

_TARGETS = {
    "class": pa.int64(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "texts": pa.list_(pa.string()),
    "numbers": pa.list_(pa.float64()),
}
_NUMBERS = {"int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64()}
_RESERVED = {"label": "class", "id": "number of the example"}

WIDENED: dict[str, Dtype] = {
    "bool": "uint8",
    "uint8": "uint8",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16", "uint32"), "int64"),
    **dict.fromkeys(("float16", "float32"), "float32"),
    "float64": "float64",
}
"""The stored dtype that holds each value of a numpy dtype exactly."""


class SplitColumn(TypedDict):
    """What data.splits goes by: the name of a field or feature, and whether it is a group or a time."""

    name: str
    use: Literal["group", "time"]


class StagedSchema(Record):
    """What the staged examples are: the inputs as a reader hands them on, the target as the source has it."""

    name: str
    """What was read, such as imdb_reviews/plain_text:1.0.0."""
    features: dict[str, Feature]
    """The inputs."""
    target: Literal["class", "int64", "float64", "bool", "string", "texts", "numbers"]
    """Type of the target; class: an index into `classes`; texts: a list of the names of classes; numbers: a list of
    float64, equally many each."""
    classes: tuple[str, ...] | None
    """The class names, if the source has them."""
    split_by: Literal["string", "int64"] | None
    """Type of the column that data.splits goes by; None: by none."""
    splits: dict[str, int]
    """The official splits in order, with the number of examples in each; without any, the source has none."""
    notes: tuple[str, ...]
    """What a user should be told."""

    def columns(self) -> pa.Schema:
        """Returns the columns of the files; a tensor is its bytes in C order, little-endian, a bad row's input None."""
        fields = [
            (TARGET, _TARGETS[self.target]),
            (SPLIT, pa.string()),
            (NUMBER, pa.int64()),
            (KEY, pa.string()),
            (SPLIT_BY, pa.int64() if self.split_by == "int64" else pa.string()),
            (BAD_COLUMN, pa.string()),
            (BAD_REASON, pa.string()),
        ]
        return pa.schema([*fields, *((name, _type(feature)) for name, feature in self.features.items())])


def check_names(names: Iterable[str], mend: str, *, chosen: bool = False) -> None:
    """Raises ConfigError if one of the names cannot be an input's; `mend` says how to change it.

    Opening the source makes features' names of them. What shards keep by themselves is an input only if it was chosen.
    """
    for name in names:
        if not name.isprintable() or not name or name.startswith("#"):
            raise ConfigError(f"data.source: an input cannot be named {name!r}; {mend}")
        if name in _RESERVED and not chosen:
            raise ConfigError(
                f"data.source: an input cannot be named {name!r}, for shards keep the {_RESERVED[name]} there; {mend}"
            )


class StagedWriter:
    """Writes examples-NNNNN.parquet in row groups of about 8 MB; the same examples give the same bytes."""

    def __init__(self, directory: Path, columns: pa.Schema, *, file_bytes: int = _FILE_BYTES) -> None:
        self._directory = directory
        self._columns = columns
        self._file_bytes = file_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._num_files = 0
        self._written = 0  # bytes in the present file before compression
        self._file: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        """Returns the writer; it is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes what waits, unless the block failed, and closes the file."""
        if error is None:
            self._flush()
        if self._file is not None:
            self._file.close()

    def add(self, columns: Mapping[str, Any], *, num_rows: int) -> None:
        """Adds neighbouring examples: n values (a list or an array) of each column; one that is left out is None."""
        arrays = [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(num_rows, field.type)
            for field in self._columns
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._columns))
        if sum(batch.nbytes for batch in self._waiting) >= ROW_GROUP_BYTES:
            self._flush()

    def add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds neighbouring examples, a mapping each."""
        self.add({name: [row.get(name) for row in rows] for name in self._columns.names}, num_rows=len(rows))

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        self._waiting = []
        if self._file is None or self._written >= self._file_bytes:
            self._open_next()
        assert self._file is not None
        rows = min(ROW_GROUP_ROWS, max(1, table.num_rows * ROW_GROUP_BYTES // max(1, table.nbytes)))
        try:
            self._file.write_table(table, row_group_size=rows)
        except OSError as error:
            raise DataError(f"{self._directory}: cannot be written ({error}); make room there and run again") from error
        self._written += table.nbytes

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
        path = self._directory / PATTERN.replace("*", f"{self._num_files:05d}")
        # Encoded images and tensors have no equal values for a dictionary to find.
        self._file = pq.ParquetWriter(
            path, self._columns, compression="zstd", compression_level=1, use_dictionary=False
        )
        self._num_files += 1
        self._written = 0


def _type(feature: Feature) -> pa.DataType:
    return _NUMBERS[feature.dtype] if feature.kind == "number" else pa.binary()
