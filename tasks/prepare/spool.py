"""The spool: the frames of a source's examples in one file, as they come in, to be read in any order."""

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.batches import CHUNK_BYTES, Frames


class SpoolWriter:
    """Takes in frames; they lie on disk, and in memory where each begins: a shuffle needs 8 bytes an example."""

    def __init__(self, path: Path) -> None:
        """Begins an empty spool in a new file."""
        self._path, self._starts = path, array("q", [0])

    def __enter__(self) -> Self:
        self._file = open(self._path, "xb")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, frames: Frames) -> None:
        """Adds frames behind those that are there."""
        self._file.write(frames.data)
        self._starts.extend(accumulate(frames.sizes, initial=self._starts.pop()))

    def spool(self) -> "Spool":
        """Returns what was written, once the block has ended."""
        return Spool(self._path, np.frombuffer(self._starts, np.int64))


@dataclass(frozen=True)
class Spool:
    """Frames in a file, to be read in any order."""

    path: Path
    starts: NDArray[np.int64]
    """Where each frame begins, and the last one ends, [num_examples + 1]."""

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self.starts) - 1

    def sizes(self) -> NDArray[np.int64]:
        """Returns the size of each frame in bytes, [num_examples]."""
        return np.diff(self.starts)

    def frames(self, rows: NDArray[np.int64]) -> Iterator[Frames]:
        """Yields the frames at these places, in this order, about CHUNK_BYTES at a time; use each before the next."""
        starts, sizes = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        chunk = np.cumsum(sizes) // CHUNK_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(rows)]
        # Read, not mapped: a mapping would count as memory of this process, and cost a fault a page.
        buffer = memoryview(bytearray(max(int(sizes[first:last].sum()) for first, last in pairwise(cuts))))
        with open(self.path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            for first, last in pairwise(cuts):
                chunk_sizes: list[int] = sizes[first:last].tolist()
                filled = 0
                for start, size in zip(starts[first:last].tolist(), chunk_sizes, strict=True):
                    num_read = os.preadv(descriptor, [buffer[filled : filled + size]], start)
                    assert num_read == size, "a frame lies in the spool as it was written"
                    filled += size
                yield Frames(buffer[:filled], chunk_sizes)
