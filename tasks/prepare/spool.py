"""The spool: the frames of a source's examples in one file, as they come in, to be read in any order."""

import os
from array import array
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.batches import CHUNK_BYTES, Frames


class Spool:
    """Holds frames on disk, and in memory where each begins: a shuffle needs 8 bytes an example."""

    def __init__(self, path: Path) -> None:
        """Begins an empty spool in a new file."""
        self._path = path
        self._starts = array("q", [0])
        self._file = open(path, "xb")  # noqa: SIM115 - open until all is in

    def append(self, frames: Frames) -> None:
        """Adds frames behind those that are there."""
        self._file.write(frames.data)
        self._starts.extend(accumulate(frames.sizes, initial=self._starts.pop()))

    def close(self) -> None:
        """Ends the adding; must come before `frames`."""
        self._file.close()

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self._starts) - 1

    def sizes(self) -> NDArray[np.int64]:
        """Returns the size of each frame in bytes, [num_examples]."""
        starts = np.frombuffer(self._starts, np.int64)
        return starts[1:] - starts[:-1]

    def frames(self, rows: NDArray[np.int64]) -> Iterator[Frames]:
        """Yields the frames at these places, in this order, about CHUNK_BYTES at a time; use each before the next."""
        starts, sizes = np.frombuffer(self._starts, np.int64)[rows], self.sizes()[rows]
        chunk = np.cumsum(sizes) // CHUNK_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(rows)]
        # Read, not mapped: a mapping would count as memory of this process, and cost a fault a page.
        buffer = memoryview(bytearray(max(int(sizes[first:last].sum()) for first, last in pairwise(cuts))))
        with open(self._path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            for first, last in pairwise(cuts):
                chunk_sizes: list[int] = sizes[first:last].tolist()
                filled = 0
                for start, size in zip(starts[first:last].tolist(), chunk_sizes, strict=True):
                    num_read = os.preadv(descriptor, [buffer[filled : filled + size]], start)
                    assert num_read == size, "a frame lies in the spool as it was written"
                    filled += size
                yield Frames(buffer[:filled], chunk_sizes)
