"""Slices: the examples of a split that have one value in a column, and the figures of each such group."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tasks.evaluate.report import SliceFigures
from tasks.feed.records import stored_batches
from tasks.prepare.manifest import ShardManifest

Rows: TypeAlias = NDArray[np.int64]
"""Places of examples in the split, ascending."""
MAX_VALUES = 50  # of a column, told one by one: the most frequent
NUM_RANGES = 5  # of numbers, with about as many examples each
MISSING, OTHERS, NONE = "(missing)", "(other values)", "(none)"


def slice_figures(
    slices: Mapping[str, Mapping[str, Rows]], figures: Callable[[Rows], dict[str, float]], *, min_examples: int
) -> tuple[SliceFigures, ...]:
    """Returns the figures of the rows of each value of each column, those of fewer than `min_examples` marked."""
    return tuple(
        SliceFigures(
            column=column,
            value=value,
            num_examples=len(rows),
            is_small=len(rows) < min_examples,
            figures=figures(rows),
        )
        for column, values in slices.items()
        for value, rows in values.items()
    )


def read_slices(
    directory: Path, manifest: ShardManifest, split: str, columns: Sequence[str], targets: NDArray[Any]
) -> dict[str, dict[str, Rows]]:
    """Returns {column: {value: rows}} of the columns that evaluate.slices names, for the targets of a split, [n, ...].

    Values that are missing are a slice of their own.
    """
    stored = [name for name in columns if name in manifest.features and name != manifest.target]
    marks = {name: manifest.features[name].missing for name in stored}
    names = {*stored, *(mark for mark in marks.values() if mark is not None)}
    batches = list(stored_batches(directory, manifest, split, names)) if names else []
    values = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    found: dict[str, dict[str, Rows]] = {}
    for name in dict.fromkeys(columns):
        if name in marks:
            mark = marks[name]
            found[name] = by_value(values[name], None if mark is None else values[mark] == 1)
        elif name in (manifest.target, *manifest.label_map):
            found[name] = _by_target(manifest, targets, name)
        else:
            shards = manifest.splits[split].shards
            files = np.array([shard.file.encode() for shard in shards], object)
            found[name] = by_value(np.repeat(files, [shard.num_examples for shard in shards]))
    return found


def by_value(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> dict[str, Rows]:
    """Returns {value: rows} of [n] numbers, or texts as bytes objects, in rising order.

    Numbers with a fraction, and whole ones of more than MAX_VALUES values, are cut into NUM_RANGES ranges between
    quantiles. Of more than MAX_VALUES texts the most frequent are kept, equal counts by their text; the rest is OTHERS.
    """
    missing = np.zeros(len(values), bool) if missing is None else missing
    rows = np.flatnonzero(~missing)
    kept = values[rows]
    if kept.dtype.kind == "f" or (kept.dtype.kind in "iu" and len(np.unique(kept)) > MAX_VALUES):
        found = _by_range(kept)
    else:
        is_text = kept.dtype == object
        found = _by_name(np.array([value.decode() for value in kept], object) if is_text else kept)
    slices = {name: rows[places] for name, places in found.items()}
    return _and(slices, MISSING, np.flatnonzero(missing))


def _by_name(values: NDArray[Any]) -> dict[str, Rows]:
    different, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    told = np.sort(np.argsort(-counts, kind="stable")[:MAX_VALUES])
    found = {str(different[each]): np.flatnonzero(place == each) for each in told}
    others = np.flatnonzero(~np.isin(place, told))
    return _and(found, OTHERS, others)


def _and(found: dict[str, Rows], name: str, rows: Rows) -> dict[str, Rows]:
    """Returns the slices with one more, if it has examples, under a name that no value has."""
    while name in found:
        name = f"({name})"
    return found | {name: rows} if len(rows) else found


def _by_range(numbers: NDArray[Any]) -> dict[str, Rows]:
    """Each range is from its lower bound up to, without it, its upper; the last one is with it."""
    bounds = np.unique(np.quantile(numbers, np.arange(NUM_RANGES + 1) / NUM_RANGES)) if len(numbers) else numbers
    if len(bounds) < 2:
        return {f"{bound:g}": np.arange(len(numbers)) for bound in bounds}
    names = _written(bounds)
    place = np.searchsorted(bounds[1:-1], numbers, side="right")
    ranges = [f"{low} to {high}" for low, high in pairwise(names)]
    found = {name: np.flatnonzero(place == each) for each, name in enumerate(ranges)}
    return {name: rows for name, rows in found.items() if len(rows)}


def _written(bounds: NDArray[Any]) -> list[str]:
    """Returns the bounds in the fewest digits, four or more, that tell them apart, and without an exponent."""
    written = ([f"{Decimal(f'{bound:.{digits}g}'):f}" for bound in bounds] for digits in range(4, 18))
    return next(names for names in written if len(set(names)) == len(bounds))


def _by_target(manifest: ShardManifest, targets: NDArray[Any], name: str) -> dict[str, Rows]:
    match manifest.target_kind:
        case "regression":
            return by_value(targets[:, manifest.label_map.index(name)])
        case "multi_label":
            found = {each: np.flatnonzero(targets[:, place]) for place, each in enumerate(manifest.label_map)}
            found = _and(found, NONE, np.flatnonzero(~targets.any(axis=1)))
        case _:
            found = {each: np.flatnonzero(targets == place) for place, each in enumerate(manifest.label_map)}
    return {each: rows for each, rows in found.items() if len(rows)}
