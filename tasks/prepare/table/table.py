"""Table: the rows of Parquet, CSV, JSON lines or Arrow files as the examples of a source."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.config import DataConfig
from tasks.prepare.faults import Faults
from tasks.prepare.groups import groups_of
from tasks.prepare.source import Batch, Column, Part, SourceSchema
from tasks.prepare.table.facts import texts_of
from tasks.prepare.table.layout import Layout, lay_out
from tasks.prepare.table.rows import Rows
from tasks.prepare.table.values import Mask
from tasks.prepare.wording import shown
from tasks.splits import FileSplits, GroupSplits, TimeSplits

_MICROSECONDS_A_DAY = 86_400_000_000


def open_table(config: DataConfig, directory: Path, files: Sequence[str], part: Part | None = None) -> "Table":
    """Returns the rows of `files` (paths below `directory`, in their order), or of a part of them, as a source.

    Looks at all rows once or twice, a few megabytes at a time, to know types, classes and what is missing. Raises
    ConfigError if the config does not fit the columns, DataError if a file cannot be read.
    """
    return Table(config, lay_out(config, directory, files), part)


class Table:
    """An opened table: a `Source`.

    Splits by group go by the column's text; those by time go by microseconds since 1970 UTC of dates and timestamps, by
    numbers as they are.
    """

    schema: SourceSchema
    notes: tuple[str, ...]

    def __init__(self, config: DataConfig, layout: Layout, part: Part | None) -> None:
        self.schema, self.notes = layout.schema, layout.notes
        self._splits, self._layout = config.splits, layout
        self._part = part or Part(files=frozenset(layout.files.types), first_row=0)

    def read(self) -> Iterator[Batch]:
        """Yields all rows in the order of the files; a row with more than one bad value is named by the first.

        Raises DataError where a file cannot be read any further.
        """
        layout, first = self._layout, self._part.first_row
        others = [usage.name for usage in (*layout.target.usages, layout.id, layout.split) if usage is not None]
        names = list(dict.fromkeys([*(usage.name for usage in layout.inputs.values()), *others]))
        ids: dict[str, str] = {}
        for file in filter(self._part.files.__contains__, layout.files.types):
            num_rows = 0
            for rows in layout.files.read(file, names):
                if len(rows.numbers) or rows.bad:
                    yield self._batch(file, rows, first, ids)
                num_rows += len(rows.numbers) + len(rows.bad)
            first += num_rows

    def _batch(self, file: str, rows: Rows, first: int, ids: dict[str, str]) -> Batch:
        layout, faults = self._layout, Faults()
        columns: dict[str, NDArray[np.generic] | pa.Array] = {}
        for name, usage in layout.inputs.items():
            values = usage.checked(rows, faults, may_miss=(mark := self.schema.features[name].missing) is not None)
            columns[name] = values.values
            if mark is not None:
                columns[mark] = values.missing.astype(np.int64)
        labels = layout.target.read(rows, faults)
        keys = [f"{file}:{number}" for number in rows.numbers.tolist()]
        if layout.id is not None:
            keys = texts_of(layout.id.checked(rows, faults))
            faults.add(
                layout.id.name, self._repetitions(keys, ids, [f"row {n} of {file}" for n in rows.numbers.tolist()])
            )
        split_by = self._split_by(file, rows, faults)
        good = faults.good(len(rows.numbers))
        found = faults.examples([file] * len(good), rows.numbers.tolist())
        return Batch(
            rows=rows.numbers[good] + (first - 1),
            keys=_chosen_texts(keys, good),
            labels=labels[good],
            columns={name: _column(values, good) for name, values in columns.items()},
            split_by=split_by[good] if isinstance(split_by, np.ndarray) else split_by and _chosen_texts(split_by, good),
            bad=tuple(sorted((*rows.bad, *found), key=lambda bad: bad.row or 0)),
        )

    def _repetitions(self, keys: Sequence[str], ids: dict[str, str], places: Sequence[str]) -> dict[int, str]:
        """Returns which rows have the id of an earlier one; `ids` remembers the row of each that may come again."""
        found = {}
        if self._layout.repeated:
            for place, key in enumerate(keys):
                if hash(key) in self._layout.repeated and ids.setdefault(key, places[place]) != places[place]:
                    found[place] = f"is {shown(key)}, as in {ids[key]}, but an id names one row"
        return found

    def _split_by(self, file: str, rows: Rows, faults: Faults) -> Sequence[str] | NDArray[np.int64] | None:
        usage, splits = self._layout.split, self._splits
        if isinstance(splits, FileSplits):
            return [file] * len(rows.numbers)
        if usage is None:
            return None
        values = usage.checked(rows, faults)
        if isinstance(splits, GroupSplits):
            groups, wrong = groups_of(texts_of(values), splits.pattern)
            faults.add(usage.name, wrong)
            return groups
        assert isinstance(splits, TimeSplits)
        times = values.values
        if usage.form.meaning == "float":
            whole = (times % 1 == 0) & (np.abs(times) < 2.0**63)
            faults.add(
                usage.name,
                {place: f"is {times[place]}, not a whole number" for place in np.flatnonzero(~whole).tolist()},
            )
            times = np.where(whole, times, 0).astype(np.int64)
        return times * _MICROSECONDS_A_DAY if usage.form.meaning == "date" else times


def _chosen_texts(texts: Sequence[str], good: Mask) -> Sequence[str]:
    return texts if good.all() else [text for text, is_good in zip(texts, good.tolist(), strict=True) if is_good]


def _column(values: NDArray[np.generic] | pa.Array, good: Mask) -> Column:
    if isinstance(values, np.ndarray):
        return values if good.all() else values[good]
    texts = pc.fill_null(values, "") if good.all() else pc.fill_null(values.filter(pa.array(good)), "")
    return texts.cast(pa.binary()).to_pylist()
