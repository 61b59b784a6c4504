"""Facts: what must be known of all rows of a table before the first is read for good."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.errors import ConfigError
from tasks.prepare.columns import lengths_of
from tasks.prepare.labels import MAX_CLASSES
from tasks.prepare.rows import TableFiles
from tasks.prepare.usage import Usage, empty
from tasks.prepare.values import Values, nulls


@dataclass
class Facts:
    """What one look at all rows has found."""

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
    target: Usage | None,
    id: Usage | None,
    *,
    missing: bool,
) -> Facts:
    """Returns the facts of all rows; `target` is None if its classes are known, `missing` asks which inputs have gaps.

    Raises ConfigError if an input has no value in any row, or if most lists of a column are not of one length.
    """
    facts, lengths, ids = Facts(), dict[str, Counter[int]](), []
    valued: set[str] = set()
    lists = {usage.name for usage in (*inputs, *([target] if target else ())) if usage.form.meaning == "list"}
    for file in files.types:
        open_inputs = [
            usage
            for usage in inputs
            if usage.name in lists or usage.name not in valued or (missing and usage.name not in facts.missing)
        ]
        needed = [*open_inputs, *(usage for usage in (target, id) if usage is not None)]
        if not needed:
            break
        for rows in files.read(file, list(dict.fromkeys(usage.name for usage in needed))):
            facts.num_rows += len(rows.numbers) + len(rows.bad)
            for name in lists & rows.columns.keys():
                found = pc.value_counts(lengths_of(rows.columns[name]).drop_null())
                counts = zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)
                lengths.setdefault(name, Counter()).update(dict(counts))
            for usage in open_inputs:
                if usage.name in lists:
                    gaps = nulls(rows.columns[usage.name])
                elif usage.name not in valued or (missing and usage.name not in facts.missing):
                    gaps = usage.convert(rows.columns[usage.name]).missing
                else:
                    continue
                if gaps.any():
                    facts.missing.add(usage.name)
                if not gaps.all():
                    valued.add(usage.name)
            if target is not None and target.name not in lists and len(facts.classes) <= MAX_CLASSES:
                facts.classes |= _different(target.convert(rows.columns[target.name]), target.form.meaning)
            if id is not None:
                texts = texts_of(id.convert(rows.columns[id.name]))
                ids.append(np.fromiter(map(hash, texts), np.int64, len(texts)))
    for usage in inputs:
        if facts.num_rows and usage.name not in valued:
            raise ConfigError(empty(usage.name))
    facts.lengths = {name: _usual(name, counts) for name, counts in lengths.items()}
    if ids:
        hashes, counts = np.unique(np.concatenate(ids), return_counts=True)
        facts.repeated = frozenset(hashes[counts > 1].tolist())
    return facts


def texts_of(values: Values) -> list[str]:
    """Returns n values as text, '' where one is missing or bad."""
    if isinstance(values.values, pa.Array):
        return pc.fill_null(values.values, "").to_pylist()
    return [
        "" if gone else str(value) for value, gone in zip(values.values.tolist(), values.missing.tolist(), strict=True)
    ]


def _different(values: Values, meaning: str) -> set[Any]:
    """Returns the different values that are neither missing nor bad, truth values as such."""
    if isinstance(values.values, pa.Array):
        return set(pc.unique(values.values.drop_null()).to_pylist())
    good = ~values.missing
    good[list(values.bad)] = False
    found = np.unique(values.values[good]).tolist()
    return {bool(value) for value in found} if meaning == "bool" else set(found)


def _usual(name: str, counts: Counter[int]) -> int:
    length, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    if count * 2 <= counts.total() or length == 0:
        raise ConfigError(
            f"data.source: column {name!r} holds lists of {len(counts)} different lengths from {min(counts)} to "
            f"{max(counts)}, most often {length}, but a tensor has one; leave it out with columns"
        )
    return length
