"""The plan: which example goes to which place in which shard. Pure; writes nothing."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.splits import SPLITS


@dataclass(frozen=True)
class ShardPlan:
    """One shard of a split: the examples `start` (inclusive) to `stop` (exclusive) of its order."""

    index: int
    num_shards: int
    start: int
    stop: int


def plan_order(splits: NDArray[np.int8], hashes: NDArray[np.uint64]) -> dict[str, NDArray[np.int64]]:
    """Returns the rows of each split in the order in which they are written, [num_examples of the split] int64.

    It is the order of the hashes, [n]: a shuffle over the whole split, so that classes mix in every shard.
    """
    order = np.argsort(hashes, kind="stable")
    return {split: order[splits[order] == index] for index, split in enumerate(SPLITS)}


def plan_shards(
    num_examples: int, *, size_bytes: int, target_bytes: int, num_shards: int | None = None, multiple: int = 1
) -> list[ShardPlan]:
    """Returns the shards that hold `num_examples` of `size_bytes` in all, each of about `target_bytes` at most.

    Shards differ by at most one example, so that no worker waits for another; none is empty. `num_shards` is exact and
    takes the place of their size; without it there are a multiple of `multiple`, unless there are fewer examples.
    Raises ConfigError if there are fewer examples than `num_shards`.
    """
    if num_shards is None:
        num_shards = min(num_examples, math.ceil(size_bytes / target_bytes / multiple) * multiple)
    elif num_shards > num_examples:
        raise ConfigError(
            f"data.num_shards={num_shards}: the training split has only {num_examples} examples, and no shard may be "
            "empty; take fewer shards"
        )
    return [
        ShardPlan(index, num_shards, index * num_examples // num_shards, (index + 1) * num_examples // num_shards)
        for index in range(num_shards)
    ]
