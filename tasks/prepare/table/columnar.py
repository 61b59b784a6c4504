"""ColumnarFiles: the tables of Parquet and Arrow (Feather) files, which know their own types."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import DataError
from tasks.prepare.table.rows import Rows
from tasks.sources import ColumnType

BATCH_BYTES = 8 << 20
BATCH_ROWS = 65_536
BUFFER_BYTES = 64 << 10  # a column


class ColumnarFiles:
    """Files of one of the two formats below a directory; opening them reads their schemas."""

    notes: tuple[str, ...] = ()

    def __init__(self, directory: Path, files: Sequence[str], *, parquet: bool) -> None:
        """Raises DataError if a file cannot be read as its format, or has two columns of one name."""
        self._directory = directory
        self._open = _ParquetFile if parquet else _ArrowFile
        self._format = "Parquet" if parquet else "Arrow"
        self.types: dict[str, dict[str, pa.DataType]] = {}
        self._tops: dict[str, dict[str, str]] = {}
        for file in files:
            with self._readable(file), closing(self._open(directory / file)) as opened:
                self.types[file], self._tops[file] = self._leaves(file, opened.schema)

    def infer(self, names: Sequence[str]) -> dict[str, ColumnType]:
        """Returns nothing: the files say it all."""
        return {}

    def read(self, file: str, names: Sequence[str]) -> Iterator[Rows]:
        """Yields all rows of a file with the columns `names`; raises DataError where the file is damaged."""
        tops = list(dict.fromkeys(self._tops[file][name] for name in names))
        first = 1
        with self._readable(file), closing(self._open(self._directory / file)) as opened:
            for batch in opened.batches(tops):
                for part in _parts(batch):
                    leaves = dict(_flat([(name, part.column(name)) for name in part.schema.names]))
                    columns = {name: leaves[name] for name in names}
                    yield Rows(np.arange(first, first + part.num_rows), columns)
                    first += part.num_rows

    def _leaves(self, file: str, schema: pa.Schema) -> tuple[dict[str, pa.DataType], dict[str, str]]:
        types: dict[str, pa.DataType] = {}
        tops: dict[str, str] = {}
        for field in schema:
            for name, type in _flat_types(field.name, field.type):
                if name in types:
                    raise DataError(f"{self._directory / file}: has two columns {name!r}; rename one of them")
                types[name], tops[name] = type, field.name
        return types, tops

    def _readable(self, file: str) -> "_Readable":
        return _Readable(f"{self._directory / file}", self._format)


class _Readable:
    """Turns what pyarrow says of a file that is no such file, or damaged, into a DataError."""

    def __init__(self, path: str, format: str) -> None:
        self._path, self._format = path, format

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
            if "Expected all lists to be of size" in str(error):
                raise DataError(
                    f"{self._path}: has a list of fixed size that is missing, which pyarrow cannot read from Parquet "
                    f"(apache/arrow#35692); write the column as a plain list or the file as Arrow, or leave it out "
                    f"with data.source.columns"
                ) from error
            raise DataError(
                f"{self._path}: cannot be read as {self._format} ({str(error).splitlines()[0]}); write it anew, or "
                f"set data.source.format if it is another"
            ) from error


class _ParquetFile:
    def __init__(self, path: Path) -> None:
        # Buffered reads in place of whole row groups, which may be as large as the file.
        self._file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True)
        self.schema = self._file.schema_arrow

    def batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        about = self._file.metadata
        size_bytes = sum(about.row_group(index).total_byte_size for index in range(about.num_row_groups))
        rows = min(BATCH_ROWS, max(1, BATCH_BYTES * max(about.num_rows, 1) // max(size_bytes, 1)))
        yield from self._file.iter_batches(rows, columns=names)

    def close(self) -> None:
        self._file.close()


class _ArrowFile:
    def __init__(self, path: Path) -> None:
        self._map = pa.memory_map(str(path))
        try:
            self._file: Any = pa.ipc.open_file(self._map)
        except pa.ArrowInvalid:
            self._map.seek(0)
            self._file = pa.ipc.open_stream(self._map)
        self.schema = self._file.schema

    def batches(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        if isinstance(self._file, pa.RecordBatchFileReader):
            batches = (self._file.get_batch(index) for index in range(self._file.num_record_batches))
        else:
            batches = iter(self._file)
        for batch in batches:
            batch.validate(full=True)  # its bytes are not checked by anyone else
            yield batch.select(names)

    def close(self) -> None:
        self._map.close()


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields a batch in parts of a bounded size."""
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _flat_types(name: str, type: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    storage = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    if not pa.types.is_struct(storage) or storage.num_fields == 0:
        yield name, type
        return
    for field in storage:
        yield from _flat_types(f"{name}.{field.name}", field.type)


def _flat(columns: Sequence[tuple[str, pa.Array]]) -> Iterator[tuple[str, pa.Array]]:
    for name, array in columns:
        storage = array.storage if isinstance(array, pa.ExtensionArray) else array
        if not pa.types.is_struct(storage.type) or storage.type.num_fields == 0:
            yield name, array
            continue
        fields = zip((field.name for field in storage.type), storage.flatten(), strict=True)
        yield from _flat([(f"{name}.{field}", values) for field, values in fields])
