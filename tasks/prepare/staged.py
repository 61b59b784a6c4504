"""Staged examples as a source: what a TFDS builder or a reader of the user's yielded, from its Parquet files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

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
from tasks.prepare.faults import Faults
from tasks.prepare.groups import groups_of
from tasks.prepare.image_worker import ImageWorkers
from tasks.prepare.manifest import Feature
from tasks.prepare.names import feature_names, rename_notes
from tasks.prepare.remarks import Remarks
from tasks.prepare.source import Batch, Column, Source, SourceSchema
from tasks.prepare.staged_target import open_staged_target
from tasks.prepare.table.columns import convert
from tasks.prepare.threads import num_workers
from tasks.sources import ArraySource, ImageFolderSource, TfdsSource
from tasks.splits import GroupSplits, OfficialSplits, TimeSplits

_UNSPLIT = "examples"  # stands in keys and messages for the split of a source that has none


def open_staged(config: DataConfig, directory: Path) -> Source:
    """Returns the staged examples of a tfds or array source as a source.

    Keys are those of the reader, or 'split:n' with n counted from 1. Images are stored as `encoded` ones of a folder.
    Examples of official splits that data.splits does not name are passed over, and a note says so; the notes are
    complete once all is read. Raises ConfigError if data.splits names an official split that is not there, if two
    inputs would be one feature or if the target holds no classes, DataError if the files cannot be read or a worker
    dies of an image.
    """
    return _Staged(config, directory)


class _Staged:
    """An opened directory of staged examples; `notes` are those of the whole, and then what was found in the images."""

    def __init__(self, config: DataConfig, directory: Path) -> None:
        assert isinstance(config.source, ArraySource | TfdsSource), config.source.kind
        self._directory, self._num_workers = directory, num_workers(config)
        self._source, self._splits = config.source, config.splits
        self._staged = StagedSchema.read(directory / SCHEMA)
        self._wanted = _wanted_splits(config, self._staged)
        self._names = feature_names(list(self._staged.features), "input")
        self._target = open_staged_target(config, self._staged, self._label_values)
        self.schema = SourceSchema(
            features={self._names[name]: feature for name, feature in self._staged.features.items()},
            inputs=tuple(self._names.values()),
            label_map=self._target.names,
            target=self._target.feature,
        )
        splits = _split_notes(self._staged, self._wanted)
        self._first_notes = (*self._staged.notes, *splits, *rename_notes(self._names, "input"))
        self.notes: tuple[str, ...] = self._first_notes

    def read(self) -> Iterator[Batch]:
        """Yields the examples in the order in which they were staged, a row group at a time."""
        row, remarks = 0, Remarks("example")
        has_images = any(feature.kind == "image" for feature in self._staged.features.values())
        with ImageWorkers(self._num_workers if has_images else 0) as workers:
            for group in self._tables():
                wanted = self._is_wanted(group)
                table = group if pc.all(wanted).as_py() else group.filter(wanted)  # which copies
                if table.num_rows:
                    yield self._batch(table, row + np.flatnonzero(wanted), workers, remarks)
                row += group.num_rows
        self.notes = self._first_notes + remarks.notes()

    def _tables(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yields the row groups, of about 8 MB at most."""
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
        """Yields the targets of all good examples of the wanted splits, each at least once."""
        for table in self._tables([TARGET, SPLIT, BAD_REASON]):
            good = pc.and_(self._is_wanted(table), pc.is_null(table[BAD_REASON]))
            values = table.filter(good)[TARGET]
            yield from (values if pa.types.is_list(values.type) else values.unique()).to_pylist()

    def _batch(self, table: pa.Table, rows: NDArray[np.int64], workers: ImageWorkers, remarks: Remarks) -> Batch:
        splits = [split or _UNSPLIT for split in table[SPLIT].to_pylist()]
        numbers = table[NUMBER].to_pylist()
        keys = [
            f"{split}:{number}" if key is None else key
            for key, split, number in zip(table[KEY].to_pylist(), splits, numbers, strict=True)
        ]
        faults = Faults()
        for row, reason in enumerate(table[BAD_REASON].to_pylist()):
            if reason is not None:
                faults.add(table[BAD_COLUMN][row].as_py(), {row: reason})
        labels = self._target.read(table[TARGET], faults)
        split_by = self._split_by(table[SPLIT_BY], splits, faults)
        columns: dict[str, Column] = {}
        for name, feature in self._staged.features.items():
            # What stands in a bad row is never looked at, but has to be of the right size.
            if feature.kind == "image":
                columns[name] = self._images(name, table[name], faults, keys=keys, workers=workers, remarks=remarks)
            else:
                columns[name], wrong = _read_column(table[name], feature)
                faults.add(name, wrong)
        good = np.flatnonzero(faults.good(len(rows)))
        return Batch(
            rows=rows[good],
            keys=[keys[row] for row in good],
            labels=labels[good],
            columns={self._names[name]: _take(column, good) for name, column in columns.items()},
            split_by=None if split_by is None else _take(split_by, good),
            bad=faults.examples(splits, numbers),
        )

    def _split_by(
        self, values: pa.ChunkedArray, splits: list[str], faults: Faults
    ) -> list[str] | NDArray[np.int64] | None:
        match self._splits:
            case OfficialSplits():
                return splits
            case TimeSplits():
                return pc.fill_null(values, 0).to_numpy()
            case GroupSplits(column=column, pattern=pattern):
                groups, wrong = groups_of(pc.fill_null(values, "").to_pylist(), pattern)
                faults.add(column, wrong)
                return groups
            case _:
                return None

    def _images(
        self,
        name: str,
        values: pa.ChunkedArray,
        faults: Faults,
        *,
        keys: list[str],
        workers: ImageWorkers,
        remarks: Remarks,
    ) -> list[bytes]:
        """Returns the images as they are stored; empty where a row is bad."""
        channels = self._staged.features[name].shape[-1]
        wanted = ImageFolderSource.model_validate(
            {"path": str(self._directory), "channels": channels, "max_pixels": self._source.max_pixels}
        )
        rows = np.flatnonzero(faults.good(len(values))).tolist()
        encoded = ((f"{self._staged.name}: {keys[row]}", values[row].as_py()) for row in rows)
        images = [b""] * len(values)
        for row, image in zip(rows, workers.prepare(encoded, wanted), strict=True):
            if isinstance(image, str):
                faults.add(name, {row: image})
            else:
                images[row] = image.data
                for remark in image.remarks:
                    remarks.add(remark, keys[row])
        return images


def _wanted_splits(config: DataConfig, staged: StagedSchema) -> list[str] | None:
    """Returns the names of the official splits that are read; None: all examples are."""
    if not isinstance(config.splits, OfficialSplits):
        return None
    named = config.splits.names()
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


def _read_column(values: pa.ChunkedArray, feature: Feature) -> tuple[Column, dict[int, str]]:
    """Returns a column's values and what is wrong with those that cannot be used; those not present are 0 or empty."""
    if feature.kind == "number":
        numbers = pc.fill_null(values, 0).to_numpy()
        return numbers, _not_finite(numbers)
    if feature.kind == "tensor":
        shape = tuple(size or 0 for size in feature.shape)
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        empty = bytes(int(np.prod(shape)) * dtype.itemsize)
        joined = b"".join(item.as_buffer() if item.is_valid else empty for item in values)
        array = np.frombuffer(joined, dtype).astype(feature.dtype, copy=False).reshape(len(values), *shape)
        return array, _not_finite(array)
    return [item or b"" for item in values.to_pylist()], convert(values.combine_chunks(), "string").bad


def _not_finite(array: NDArray[Any]) -> dict[int, str]:
    if not np.issubdtype(array.dtype, np.floating):
        return {}
    rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    return {int(row): f"{'is' if array.ndim == 1 else 'holds'} {_first_not_finite(array[row])}" for row in rows}


def _first_not_finite(values: NDArray[Any]) -> str:
    return f"{values[~np.isfinite(values)].flat[0]}, not a finite number"


def _take(column: Any, rows: NDArray[np.int64]) -> Any:
    if len(rows) == len(column):
        return column
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows]
