"""Staged examples as a source: what a TFDS builder or a reader of the user's yielded, from its Parquet files."""

import io
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from tasks.config import DataConfig
from tasks.download.staged import (
    BAD_COLUMN,
    BAD_REASON,
    KEY,
    NUMBER,
    PATTERN,
    SCHEMA,
    SPLIT,
    SPLIT_BY,
    TARGET,
    StagedSchema,
)
from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import BadExample, Feature
from tasks.prepare.source import Batch, Column, Source, SourceSchema
from tasks.sources import ArraySource, TfdsSource
from tasks.splits import SPLITS, OfficialSplits

_MAX_PIXELS = 50_000_000
_UNSPLIT = "examples"  # stands in keys and messages for the split of a source that has none
_KEPT_MODES = {"JPEG": {"L", "RGB"}, "PNG": {"L", "RGB"}}  # any decoder reads these alike


def open_staged(config: DataConfig, directory: Path) -> Source:
    """Returns the staged examples of a tfds or array source as a source.

    Keys are those of the reader, or 'split:n' with n counted from 1. Examples of official splits that data.splits does
    not name are passed over, and a note says so. Raises ConfigError if data.splits names an official split that is not
    there, DataError if the files cannot be read.
    """
    return _Staged(config, directory)


class _Staged:
    """An opened directory of staged examples."""

    def __init__(self, config: DataConfig, directory: Path) -> None:
        self._directory = directory
        self._staged = StagedSchema.read(directory / SCHEMA)
        self._config = config
        self._wanted = _wanted_splits(config, self._staged)
        assert isinstance(config.source, ArraySource | TfdsSource), config.source.kind
        self._target = config.source.target
        self._labels = _Labels(config, self._staged, self._label_values)
        self.schema = SourceSchema(
            features=self._staged.features,
            inputs=tuple(self._staged.features),
            label_map=self._labels.label_map,
        )
        self.notes = (*self._staged.notes, *_split_notes(self._staged, self._wanted))

    def read(self) -> Iterator[Batch]:
        """Yields the examples in the order in which they were staged, a row group at a time."""
        row = 0
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for group in self._tables():
                wanted = self._is_wanted(group)
                table = group.filter(wanted)
                if table.num_rows:
                    yield self._batch(table, row + np.flatnonzero(wanted), threads)
                row += group.num_rows

    def _tables(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yields the row groups, of about 16 MB at most."""
        files = sorted(self._directory.glob(PATTERN))
        if not files:
            raise DataError(f"{self._directory}: has no {PATTERN}; delete it and run again")
        for path in files:
            try:
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        yield file.read_row_group(group, columns=columns)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path}: cannot be read ({error}); delete {self._directory} and run again") from error

    def _is_wanted(self, table: pa.Table) -> pa.ChunkedArray:
        if self._wanted is None:
            return pa.chunked_array([pa.array(np.ones(table.num_rows, bool))])
        # A bad example of unknown split is nobody's: it counts as bad, whichever splits are wanted.
        return pc.or_kleene(pc.is_null(table[SPLIT]), pc.is_in(table[SPLIT], pa.array(self._wanted, pa.string())))

    def _label_values(self) -> Iterator[Any]:
        """Yields the targets of all good examples of the wanted splits, those of each row group once."""
        for table in self._tables([TARGET, SPLIT, BAD_REASON]):
            good = pc.and_(self._is_wanted(table), pc.is_null(table[BAD_REASON]))
            yield from table.filter(good)[TARGET].unique().to_pylist()

    def _batch(self, table: pa.Table, rows: NDArray[np.int64], threads: ThreadPoolExecutor) -> Batch:
        reasons: list[tuple[str | None, str] | None] = [
            None if reason is None else (column, reason)
            for column, reason in zip(table[BAD_COLUMN].to_pylist(), table[BAD_REASON].to_pylist(), strict=True)
        ]

        def mark(row: int, column: str, reason: str) -> None:
            if reasons[row] is None:
                reasons[row] = (column, reason)

        labels = np.zeros(len(rows), np.int64)
        for row, value in enumerate(table[TARGET].to_pylist()):
            if reasons[row] is None:
                label = self._labels.find(value)
                if isinstance(label, str):
                    mark(row, self._target, label)
                else:
                    labels[row] = label
        columns: dict[str, Column] = {}
        for name, feature in self._staged.features.items():
            # What stands in a bad row is never looked at, but has to be of the right size.
            present = np.array([reason is None for reason in reasons])
            columns[name], wrong = _read_column(table[name], feature, present, threads)
            for row, reason in wrong.items():
                mark(row, name, reason)
        places = [split or _UNSPLIT for split in table[SPLIT].to_pylist()]
        numbers = table[NUMBER].to_pylist()
        bad = tuple(
            BadExample(path=places[row], row=numbers[row], column=found[0], reason=found[1])
            for row, found in enumerate(reasons)
            if found is not None
        )
        good = np.flatnonzero([reason is None for reason in reasons])
        named = table[KEY].to_pylist() if self._staged.keyed else None
        return Batch(
            rows=rows[good],
            keys=[named[row] if named is not None else f"{places[row]}:{numbers[row]}" for row in good],
            labels=labels[good],
            columns={name: _take(column, good) for name, column in columns.items()},
            split_by=self._split_by(table, places, good),
            bad=bad,
        )

    def _split_by(
        self, table: pa.Table, places: list[str], good: NDArray[np.int64]
    ) -> Sequence[str] | NDArray[np.int64] | None:
        if self._config.splits.kind == "official":
            return [places[row] for row in good]
        if self._staged.split_by is None:
            return None
        values = table[SPLIT_BY].take(good).to_pylist()
        return np.array(values, np.int64) if self._staged.split_by == "int64" else values


class _Labels:
    """The label map, and the label of each value of the target."""

    def __init__(self, config: DataConfig, staged: StagedSchema, values: Any) -> None:
        self._kind = staged.target
        given = config.source.classes if isinstance(config.source, ArraySource) else None
        if staged.classes is not None:
            self.label_map = staged.classes
        elif given is not None:
            self.label_map = tuple(given)
        else:
            self.label_map = tuple(sorted({_class_name(value) for value in values()}, key=_natural))
        self._given = given is not None
        self._indices = {name: index for index, name in enumerate(self.label_map)}

    def find(self, value: Any) -> int | str:
        """Returns the label of a value of the target, or what is wrong with it."""
        if self._kind == "class":
            if 0 <= value < len(self.label_map):
                return int(value)
            unlabelled = " (so marks TFDS an example without a label)" if value == -1 else ""
            return f"is {value}, not one of the {len(self.label_map)} classes 0..{len(self.label_map) - 1}{unlabelled}"
        if isinstance(value, float) and not value.is_integer():
            return f"is {value}, not a whole number; a class is text, a whole number or a bool"
        name = _class_name(value)
        return self._indices.get(name, f"is {name!r}, none of data.source.classes")


def _class_name(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Returns a key that sorts numbers in names as numbers: -1, 2, 10, a2, a10."""
    whole = re.fullmatch(r"-?\d+", name)
    parts = [name] if whole else re.split(r"(\d+)", name)
    return [(not _is_number(part), int(part) if _is_number(part) else 0, part) for part in parts if part], name


def _is_number(part: str) -> bool:
    return re.fullmatch(r"-?\d+", part) is not None


def _wanted_splits(config: DataConfig, staged: StagedSchema) -> list[str] | None:
    """Returns the names of the official splits that are read; None: all examples are."""
    if not isinstance(config.splits, OfficialSplits):
        return None
    named = {split: name for split in SPLITS if isinstance(name := getattr(config.splits, split), str)}
    if not staged.splits:
        raise ConfigError(
            f"data.splits.kind=official: {staged.name} has no official splits; use fraction, or let a reader of yours "
            "yield the name of each example's split as 'split'"
        )
    for split, name in named.items():
        if name not in staged.splits:
            raise ConfigError(
                f"data.splits.{split}={name!r}: {staged.name} has no such split; it has {', '.join(staged.splits)}"
                + ("" if split == "train" else f", and a number such as 0.1 takes {split} out of train")
            )
    return list(named.values())


def _split_notes(staged: StagedSchema, wanted: list[str] | None) -> list[str]:
    if wanted is None:
        names = ", ".join(staged.splits)
        return [f"the official splits {names} are mixed, for data.splits.kind is not official"] if names else []
    return [
        f"the official split {name} with {count:,} example(s) is left out"
        for name, count in staged.splits.items()
        if name not in wanted
    ]


def _read_column(
    values: pa.ChunkedArray, feature: Feature, present: NDArray[np.bool_], threads: ThreadPoolExecutor
) -> tuple[Column, dict[int, str]]:
    """Returns a column's values and what is wrong with those that cannot be used; those not present are 0 or empty."""
    shape = tuple(size or 0 for size in feature.shape)
    if feature.kind == "number":
        numbers = pc.fill_null(values, 0).to_numpy()
        return numbers, _not_finite(numbers)
    items: list[bytes | None] = values.to_pylist()
    if feature.kind == "tensor":
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        empty = bytes(int(np.prod(shape)) * dtype.itemsize)
        joined = b"".join(empty if item is None else item for item in items)
        array = np.frombuffer(joined, dtype).astype(feature.dtype).reshape(len(items), *shape)
        return array, _not_finite(array)
    use = _usable_image if feature.kind == "image" else _usable_text
    channels = feature.shape[-1] if feature.kind == "image" else None
    jobs = [item if there else None for item, there in zip(items, present, strict=True)]
    results = list(threads.map(lambda item: b"" if item is None else use(item, channels), jobs, chunksize=1))
    wrong = {row: result for row, result in enumerate(results) if isinstance(result, str)}
    return [b"" if isinstance(result, str) else result for result in results], wrong


def _not_finite(array: NDArray[Any]) -> dict[int, str]:
    if not np.issubdtype(array.dtype, np.floating):
        return {}
    rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    return {int(row): f"{'is' if array.ndim == 1 else 'holds'} {_first_not_finite(array[row])}" for row in rows}


def _first_not_finite(values: NDArray[Any]) -> str:
    return f"{values[~np.isfinite(values)].flat[0]}, not a finite number"


def _usable_text(data: bytes, channels: int | None) -> bytes | str:
    """Returns the text itself, or what is wrong with it."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start + 1}"
    return data


def _usable_image(data: bytes, channels: int | None) -> bytes | str:
    """Returns the image's own bytes if any decoder reads them alike, else as PNG; or what is wrong with it."""
    try:
        Image.open(io.BytesIO(data)).verify()  # checksums and the end of a PNG, which decoding does not look at
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MAX_PIXELS:
                return f"is an image of {image.width} x {image.height}, over {_MAX_PIXELS:,} pixels"
            image.load()
            if image.mode in _KEPT_MODES.get(image.format or "", ()):
                return data
            whole: Image.Image = image
            if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion would cut them off at 255
                whole = Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
            png = io.BytesIO()
            whole.convert("L" if channels == 1 else "RGB").save(png, "png")
            return png.getvalue()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"is no readable image ({' '.join(str(error).split())})"


def _take(column: Column, rows: NDArray[np.int64]) -> Column:
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]
