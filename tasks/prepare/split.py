"""The split of each example: a pure function of the config, its class, the hash of its key and what splits go by."""

import datetime
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ConfigError, DataError
from tasks.prepare.keys import hash_keys
from tasks.prepare.targets import Targets, class_counts, strata
from tasks.prepare.wording import some
from tasks.splits import (
    SPLITS,
    FileSplits,
    FractionSplits,
    GroupSplits,
    OfficialSplits,
    Splits,
    TimeSplits,
    is_whole_number,
    microseconds_of,
    window_length,
)

LEFT_OUT = -1
TRAIN, VALIDATION, TEST = range(3)

SplitBy = NDArray[np.int64] | list[str] | None


@dataclass(frozen=True)
class Held:
    """What splits hold already, and keep when other examples come in."""

    num_examples: NDArray[np.int64]
    """Of each split."""
    groups: Mapping[str, int]
    """The split of each group; empty for rules that know none."""


def assign_splits(
    config: Splits,
    *,
    labels: Targets,
    hashes: NDArray[np.uint64],
    split_by: SplitBy,
    label_map: Sequence[str],
    seed: int,
    held: Held | None = None,
) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """Returns the split of each of n examples, an index into SPLITS or LEFT_OUT, and what a user should know of it.

    `hashes` are [n] of the keys. What is `held` stays where it is: new examples of a group join it, and all others are
    split among themselves, so that each split may get none of a few. Raises ConfigError if the source lacks what the
    splits go by, DataError if a split would be empty or train lack a class.
    """
    if held is not None and not len(labels):
        return np.zeros(0, np.int8), ()
    if not isinstance(config, FractionSplits) and split_by is None:
        raise ConfigError(
            f"data.splits.kind={config.kind}: this source has nothing to split by in that way; "
            "take data.splits.kind=fraction"
        )
    match config:
        case FractionSplits():
            splits = stratify(strata(labels), hashes, config.shares)
        case GroupSplits():
            assert isinstance(split_by, list)
            splits = _by_group(split_by, config.shares, seed, held)
        case TimeSplits():
            assert isinstance(split_by, np.ndarray)
            splits = _by_time(split_by, config)
        case OfficialSplits() | FileSplits():
            assert isinstance(split_by, list)
            splits = _by_name(config, split_by, strata(labels), hashes, all_named=held is None)
    notes = _check(splits, labels, label_map, config.kind) if held is None else _without_new(splits)
    return splits, (*_left_out(splits, split_by), *notes)


def stratify(labels: NDArray[np.int64], hashes: NDArray[np.uint64], shares: Sequence[float]) -> NDArray[np.int8]:
    """Returns the part of each example, [n]: parts have their shares of the whole and of every class, give or take one.

    A class of few examples has one in the first part, if a swap with one other class can bring it there. The order of
    the hashes decides which examples of a class go where, so that most stay where they are when others come in.
    """
    classes, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    table = _apportion_classes(counts, _apportion(len(labels), shares))
    parts = np.empty(len(labels), np.int8)
    parts[np.lexsort((hashes, class_of))] = np.repeat(
        np.tile(np.arange(len(shares), dtype=np.int8), len(classes)), table.ravel()
    )
    return parts


def parse_time(text: str) -> int:
    """Returns a boundary as the times of a source are: microseconds since 1970 in UTC, or the whole number itself."""
    if is_whole_number(text):
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"data.splits: {text!r} is no time; write 2026-01-31, 2026-01-31T12:00:00 or a whole number"
        ) from None
    return microseconds_of(moment)


def _by_group(groups: list[str], shares: Sequence[float], seed: int, held: Held | None) -> NDArray[np.int8]:
    names, group_of, counts = np.unique(np.array(groups, object), return_inverse=True, return_counts=True)
    if held is None and len(names) < len(SPLITS):
        raise DataError(
            f"data.splits: only {len(names)} group(s) ({', '.join(map(str, names))}) for {len(SPLITS)} splits; "
            "split by another column or data.splits.kind=fraction"
        )
    known = held.groups if held else {}
    split_of_group = np.array([known.get(str(name), LEFT_OUT) for name in names], np.int8)
    joined = split_of_group != LEFT_OUT
    has = np.bincount(split_of_group[joined], counts[joined], len(SPLITS)) + (held.num_examples if held else 0)
    lacks = np.array(shares) * (len(groups) + (held.num_examples.sum() if held else 0)) - has
    filled = np.full(len(SPLITS), held is not None)
    # The largest first, for a large one that comes last upsets all shares; equal ones in the order of their hashes.
    order = np.lexsort((hash_keys(map(str, names), seed)[:, 0], -counts))
    order = order[~joined[order]]
    for place, group in enumerate(order):
        # To the split that lacks most; the last groups to those that have none yet.
        must_fill = len(order) - place <= np.count_nonzero(~filled)
        split = int(np.argmax(np.where(filled & must_fill, -np.inf, lacks)))
        split_of_group[group] = split
        lacks[split] -= counts[group]
        filled[split] = True
    return split_of_group[group_of]


def _by_time(times: NDArray[np.int64], config: TimeSplits) -> NDArray[np.int8]:
    if config.validation_from is not None and config.test_from is not None:
        bounds = [parse_time(config.validation_from), parse_time(config.test_from)]
        if bounds[0] >= bounds[1]:
            raise ConfigError(
                f"data.splits.validation_from={config.validation_from}: must be before test_from={config.test_from}"
            )
    elif config.validation_window is not None and config.test_window is not None:
        test_from = int(times.max()) - window_length(config.test_window) + 1
        bounds = [test_from - window_length(config.validation_window), test_from]
    else:
        ordered = np.sort(times)
        places = np.cumsum(_apportion(len(times), config.shares))[:-1]
        bounds = ordered[np.minimum(places, len(ordered) - 1)].tolist()
    return np.searchsorted(bounds, times, side="right").astype(np.int8)


def _by_name(
    config: OfficialSplits | FileSplits,
    names: list[str],
    labels: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    *,
    all_named: bool,
) -> NDArray[np.int8]:
    """Returns the split of each example; with `all_named` each that is taken by name must be there."""
    kinds, kind_of = np.unique(np.array(names, object), return_inverse=True)
    wanted = config.names()
    split_of_kind = np.full(len(kinds), LEFT_OUT, np.int8)
    for place, kind in enumerate(kinds):
        takes = [split for split, name in wanted.items() if _is(config, kind, name)]
        if len(takes) > 1:
            raise ConfigError(
                f"data.splits: {kind} would go to {' and to '.join(takes)}; make the patterns exclude each other"
            )
        if takes:
            split_of_kind[place] = SPLITS.index(takes[0])
    for split, name in wanted.items():
        if all_named and not (split_of_kind == SPLITS.index(split)).any():
            raise ConfigError(
                f"data.splits.{split}={name}: the source has no such {_noun(config)}; it has {some(kinds.tolist())}"
            )
    return _take_shares(config, split_of_kind[kind_of], labels, hashes)


def _is(config: OfficialSplits | FileSplits, kind: str, name: str) -> bool:
    return kind == name if isinstance(config, OfficialSplits) else fnmatch.fnmatchcase(kind, name)


def _noun(config: OfficialSplits | FileSplits) -> str:
    return "split" if isinstance(config, OfficialSplits) else "file"


def _take_shares(
    config: OfficialSplits | FileSplits, splits: NDArray[np.int8], labels: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> NDArray[np.int8]:
    """Returns the splits with the shares that are given as numbers taken out of train."""
    shares = config.shares_of_train()
    (rows,) = np.nonzero(splits == TRAIN)
    if not len(rows):
        return splits
    splits = splits.copy()
    splits[rows] = stratify(labels[rows], hashes[rows], (1 - sum(shares), *shares))
    return splits


def _left_out(splits: NDArray[np.int8], split_by: SplitBy) -> tuple[str, ...]:
    (rows,) = np.nonzero(splits == LEFT_OUT)
    if not len(rows):
        return ()
    assert isinstance(split_by, list)
    names = sorted({split_by[row] for row in rows})
    return (f"{len(rows)} examples are in no split: those of {some(names)}",)


def _without_new(splits: NDArray[np.int8]) -> tuple[str, ...]:
    lacking = [split for index, split in enumerate(SPLITS) if not (splits == index).any()]
    return (f"of the {len(splits)} new examples none goes to {some(lacking)}",) if lacking else ()


def _check(splits: NDArray[np.int8], labels: Targets, label_map: Sequence[str], kind: str) -> tuple[str, ...]:
    notes = []
    for index, split in enumerate(SPLITS):
        of_split = labels[splits == index]
        if not len(of_split):
            raise DataError(
                f"data.splits: {split} would hold no example; change the shares, boundaries or windows of data.splits"
            )
        counts = class_counts(of_split, label_map)  # of numbers there are none
        lacking = [name for name, count in zip(label_map, counts, strict=False) if not count]
        if not lacking:
            continue
        if index == TRAIN:
            raise DataError(
                f"data.splits.kind={kind}: train would hold no example of class {some(lacking)}, so that no model "
                "could learn it; give more examples of it, leave the class out or split in another way"
            )
        notes.append(f"{split} holds no example of class {some(lacking)}")
    return tuple(notes)


def _apportion(total: int, shares: Sequence[float]) -> NDArray[np.int64]:
    """Returns whole numbers that add up to `total`, by largest remainder."""
    exact = total * np.array(shares)
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def _apportion_classes(counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the examples of a class in a split, [num_classes, num_splits]; rows add up to counts, columns to sizes.

    Each cell is its exact value rounded down, or one more. Which get one more is a 0/1 matrix with known sums of rows
    and columns: giving each row's ones to the columns that lack most builds it if it exists (Gale and Ryser, 1957).
    """
    floors, remainders = np.divmod(np.outer(counts, sizes), counts.sum())
    table, lacks = floors.copy(), sizes - floors.sum(axis=0)
    for row, remainder, count in zip(table, remainders, counts, strict=True):
        gets = np.lexsort((-remainder, -lacks))[: count - row.sum()]  # among equal lacks, the larger remainder
        row[gets] += 1
        lacks[gets] -= 1
    _fill_first(table, floors)
    return table


def _fill_first(table: NDArray[np.int64], floors: NDArray[np.int64]) -> None:
    """Gives a class that lacks in the first split one example there, where another class can do without: they swap."""
    for row in np.flatnonzero(table[:, 0] == 0).tolist():
        for held in np.flatnonzero(table[row] > floors[row]).tolist():
            can = (table[:, 0] > floors[:, 0]) & (floors[:, 0] > 0) & (table[:, held] == floors[:, held])
            if can.any():
                swap = [row, int(can.argmax())]
                table[swap, [0, held]] += 1
                table[swap, [held, 0]] -= 1
                break
