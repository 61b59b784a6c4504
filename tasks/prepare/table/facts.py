"""Facts: what must be known of all rows of a table before the first is read for good."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.labels import MAX_CLASSES, split_names
from tasks.prepare.table.columns import lengths_of
from tasks.prepare.table.rows import Rows, TableFiles
from tasks.prepare.table.usage import Usage, why_empty
from tasks.prepare.table.values import Values, nulls


@dataclass
class Facts:
    """What a look at all rows has found."""

    num_rows: int = 0
    """Good and bad ones, of the files that had to be looked at."""
    missing: set[str] = field(default_factory=set)
    """The inputs that have missing values, as far as they were asked for."""
    lengths: dict[str, int] = field(default_factory=dict)
    """How many values most lists of a column have."""
    classes: set[Any] = field(default_factory=set)
    """The different values of the target; one more than may be where there are too many."""
    repeated: frozenset[int] = frozenset()
    """hash() of every id that two rows have or more, and perhaps of others."""


def find_facts(
    files: TableFiles,
    inputs: Sequence[Usage],
    targets: Sequence[Usage],
    id: Usage | None,
    *,
    missing: bool,
    delimiter: str | None = None,
) -> Facts:
    """Returns the facts of all rows; `targets` are those whose classes or lengths are to be found.

    With a `delimiter` each of a target's texts names several classes. `missing` asks which inputs have gaps.

    Raises ConfigError if an input has no value in any row, or if most lists of a column are not of one length.
    """
    survey = _Survey(inputs, targets, id, missing, delimiter)
    for file in files.types:
        if not (names := survey.unsettled_columns()):
            break
        for rows in files.read(file, names):
            survey.add(rows)
    return survey.facts()


def texts_of(values: Values) -> list[str]:
    """Returns n values as text, '' where one is missing or bad."""
    if isinstance(values.values, pa.Array):
        return pc.fill_null(values.values, "").to_pylist()
    return [
        "" if gone else str(value) for value, gone in zip(values.values.tolist(), values.missing.tolist(), strict=True)
    ]


class _Survey:
    """The facts of the rows so far, and which columns may still tell more."""

    def __init__(
        self,
        inputs: Sequence[Usage],
        targets: Sequence[Usage],
        id: Usage | None,
        missing: bool,
        delimiter: str | None,
    ) -> None:
        self._inputs, self._targets, self._id, self._missing = inputs, targets, id, missing
        self._delimiter = delimiter
        lists = [each for each in (*inputs, *targets) if each.form.meaning == "list"]
        self._lengths: dict[str, Counter[int]] = {each.name: Counter() for each in lists}
        self._valued: set[str] = set()
        self._ids: list[NDArray[np.int64]] = []
        self._facts = Facts()

    def unsettled_columns(self) -> list[str]:
        """Returns the columns of which more rows can tell more."""
        usages = [*(usage for usage in self._inputs if self._is_unsettled(usage)), *self._targets, self._id]
        return list(dict.fromkeys(usage.name for usage in usages if usage is not None))

    def add(self, rows: Rows) -> None:
        self._facts.num_rows += len(rows.numbers) + len(rows.bad)
        for name, counts in self._lengths.items():
            counted = pc.value_counts(lengths_of(rows.columns[name]).drop_null())
            counts.update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
        for usage in filter(self._is_unsettled, self._inputs):
            array = rows.columns[usage.name]
            gaps = nulls(array) if usage.name in self._lengths else usage.convert(array).missing
            if gaps.any():
                self._facts.missing.add(usage.name)
            if not gaps.all():
                self._valued.add(usage.name)
        for usage in self._targets:
            if usage.name not in self._lengths and len(self._facts.classes) <= MAX_CLASSES:
                found = _different(usage.convert(rows.columns[usage.name]), usage.form.meaning)
                if self._delimiter is not None:
                    found = {name for text in found for name in split_names(text, self._delimiter) if name}
                self._facts.classes |= found
        if self._id is not None:
            texts = texts_of(self._id.convert(rows.columns[self._id.name]))
            self._ids.append(np.fromiter(map(hash, texts), np.int64, len(texts)))

    def facts(self) -> Facts:
        if self._facts.num_rows:
            for usage in self._inputs:
                if usage.name not in self._valued:
                    raise ConfigError(why_empty(usage.name))
            self._facts.lengths = {name: _usual_length(name, counts) for name, counts in self._lengths.items()}
        hashes, counts = np.unique(np.concatenate([np.array([], np.int64), *self._ids]), return_counts=True)
        self._facts.repeated = frozenset(hashes[counts > 1].tolist())
        return self._facts

    def _is_unsettled(self, usage: Usage) -> bool:
        return (
            usage.name in self._lengths
            or usage.name not in self._valued
            or (self._missing and usage.name not in self._facts.missing)
        )


def _different(values: Values, meaning: str) -> set[Any]:
    """Returns the different values that are neither missing nor bad, truth values as such."""
    if isinstance(values.values, pa.Array):
        return set(pc.unique(values.values.drop_null()).to_pylist())
    good = ~values.missing
    good[list(values.bad)] = False
    found = np.unique(values.values[good]).tolist()
    return {bool(value) for value in found} if meaning == "bool" else set(found)


def _usual_length(name: str, counts: Counter[int]) -> int:
    if not counts:
        raise ConfigError(why_empty(name))
    length, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    if count * 2 <= counts.total() or length == 0:
        raise ConfigError(
            f"data.source: column {name!r} holds lists of {len(counts)} different lengths from {min(counts)} to "
            f"{max(counts)}, most often {length}, but a tensor has one; leave it out with data.source.columns"
        )
    return length
