"""Blocks: neighbouring records that are read at once, and the order of an epoch as a pure function of them."""

from dataclasses import dataclass

import numpy as np

from tasks.errors import ConfigError
from tasks.prepare.manifest import ShardManifest


@dataclass(frozen=True)
class Blocks:
    """A split cut into blocks, in storage order; five arrays of one length.

    `row` is the place of a block's first example in the split, counted over all shards.
    """

    file: np.ndarray
    """[n] int64, index into the split's shards."""
    offset: np.ndarray
    """[n] int64, byte offset of a record at or before the block's first."""
    skip: np.ndarray
    """[n] int64, records to pass over from `offset`."""
    count: np.ndarray
    """[n] int64, examples in the block."""
    row: np.ndarray
    """[n] int64."""

    def take(self, order: np.ndarray) -> "Blocks":
        """Returns the blocks at the given places, in that order."""
        return Blocks(*(column[order] for column in self.columns()))

    def start_at(self, example: int) -> "Blocks":
        """Returns what is left of the sequence after its first `example` examples."""
        ends = np.cumsum(self.count)
        first = int(np.searchsorted(ends, example, side="right"))
        if first == len(ends):
            return self.take(np.arange(0))
        rest = self.take(np.arange(first, len(ends)))
        passed = example - int(ends[first] - self.count[first])
        inside = np.zeros_like(rest.count)
        inside[0] = passed
        return Blocks(rest.file, rest.offset, rest.skip + inside, rest.count - inside, rest.row + inside)

    def rows(self) -> np.ndarray:
        """Returns [num_examples] int64: the rows of the split in the order of the blocks."""
        if not len(self.row):
            return np.zeros(0, np.int64)
        return np.concatenate([np.arange(row, row + count) for row, count in zip(self.row, self.count, strict=True)])

    def columns(self) -> tuple[np.ndarray, ...]:
        """Returns file, offset, skip, count and row, [n] int64 each."""
        return self.file, self.offset, self.skip, self.count, self.row

    def table(self) -> np.ndarray:
        """Returns the columns side by side: [n, 5] int64."""
        return np.stack(self.columns(), axis=1)


def cut_blocks(manifest: ShardManifest, split: str, *, block: int) -> Blocks:
    """Returns the blocks of at most `block` examples of a split; a block never spans two shards.

    A compressed shard is one block, for its records can be found from its start only. Raises ConfigError if `block` is
    no multiple of the manifest's offset stride, at which reading can start.
    """
    stride = manifest.offset_stride
    if block % stride:
        raise ConfigError(
            f"feed.block={block}: must be a multiple of {stride}, the distance of the offsets in the manifest"
        )
    table: list[tuple[int, int, int, int, int]] = []
    row = 0
    for file, shard in enumerate(manifest.splits[split].shards):
        step = block if manifest.compression == "none" else shard.num_examples
        for start in range(0, shard.num_examples, step):
            count = min(step, shard.num_examples - start)
            table.append((file, shard.offsets[start // stride], 0, count, row + start))
        row += shard.num_examples
    return Blocks(*np.array(table, np.int64).reshape(-1, 5).T)


def shuffle_blocks(blocks: Blocks, *, seed: int, epoch: int) -> Blocks:
    """Returns the blocks in the order of an epoch: a pure function of the seed and the epoch."""
    return blocks.take(np.random.default_rng([seed, epoch]).permutation(len(blocks.row)))
