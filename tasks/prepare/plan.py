"""The plan: which example goes to which split, at which place in which shard. Pure; writes nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.errors import DataError


@dataclass(frozen=True)
class ShardPlan:
    """One shard of a split: the examples `start` (inclusive) to `stop` (exclusive) of its order."""

    index: int
    num_shards: int
    start: int
    stop: int


def plan_splits(labels: NDArray[np.int64], shares: Mapping[str, float], seed: int) -> dict[str, NDArray[np.int64]]:
    """Returns the rows of each split in the order in which they are written, [num_examples of the split] int64.

    Every row is in exactly one split. A split's size is its share of all rows, rounded by largest remainder; of each
    class it holds its even part, give or take one. The order is shuffled over the whole split, so that classes mix in
    every shard. Raises DataError if there are no examples, or a split would have none of a class.
    """
    if not len(labels):
        raise DataError("data.source: holds no examples to split; give a source that has some")
    classes, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sizes = _apportion(len(labels), np.array(list(shares.values())))
    table = _stratify(counts, sizes)
    if not table.all():
        row, column = np.argwhere(table == 0)[0]
        share = list(shares.values())[column]
        raise DataError(
            f"data.splits.{list(shares)[column]}={share:g}: would hold no example of class {classes[row]}, which has "
            f"{counts[row]} of {len(labels)}; give each class more examples or raise the share"
        )
    drawn = _permutation(len(labels), seed, stream=0)
    by_class = drawn[np.argsort(class_of[drawn], kind="stable")]
    split_of = np.empty(len(labels), np.int64)
    split_of[by_class] = np.repeat(np.tile(np.arange(len(sizes)), len(classes)), table.ravel())
    order = _permutation(len(labels), seed, stream=1)
    return {split: order[split_of[order] == index] for index, split in enumerate(shares)}


def plan_shards(num_examples: int, *, size_bytes: int, target_bytes: int) -> list[ShardPlan]:
    """Returns the shards that hold `num_examples` of `size_bytes` in all, each of about `target_bytes` at most.

    Shards differ by at most one example, so that no worker waits for another; none is empty.
    """
    num_shards = min(num_examples, math.ceil(size_bytes / target_bytes))
    return [
        ShardPlan(index, num_shards, index * num_examples // num_shards, (index + 1) * num_examples // num_shards)
        for index in range(num_shards)
    ]


def _apportion(total: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns whole numbers that add up to `total`, by largest remainder."""
    exact = total * shares
    sizes = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def _stratify(counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the examples of a class in a split, [num_classes, num_splits]; rows add up to counts, columns to sizes.

    Each cell is its exact value rounded down, or one more. Which get one more is a 0/1 matrix with known sums of rows
    and columns: giving each row's ones to the columns that lack most builds it if it exists (Gale and Ryser, 1957).
    """
    table, remainders = np.divmod(np.outer(counts, sizes), counts.sum())
    lacks = sizes - table.sum(axis=0)
    for row, remainder, count in zip(table, remainders, counts, strict=True):
        gets = np.lexsort((-remainder, -lacks))[: count - row.sum()]  # among equal lacks, the larger remainder
        row[gets] += 1
        lacks[gets] -= 1
    return table


def _permutation(length: int, seed: int, *, stream: int) -> NDArray[np.int64]:
    """Returns the numbers below `length` in random order.

    Sorted raw Philox output, since numpy promises that for all versions, but not what Generator.permutation returns.
    """
    return np.argsort(np.random.Philox([seed, stream]).random_raw(length), kind="stable")
