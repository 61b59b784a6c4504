"""The spool: the frames of a source's examples in one file, as they come in, to be read in any order."""

import mmap
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.batches import CHUNK_BYTES, Frame


class Spool:
    """Holds frames on disk, and in memory where each begins: a shuffle needs 8 bytes an example."""

    def __init__(self, path: Path) -> None:
        """Begins an empty spool in a new file."""
        self._path = path
        self._starts = array("q", [0])
        self._file = open(path, "xb")  # noqa: SIM115 - open until all is in

    def append(self, frames: Sequence[Frame]) -> None:
        """Adds frames behind those that are there."""
        self._file.write(b"".join(frames))  # type: ignore[arg-type]  # NumPy says from Python 3.12 on that an array is a buffer
        self._starts.extend(accumulate(map(len, frames), initial=self._starts.pop()))

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

    def frames(self, rows: NDArray[np.int64]) -> Iterator[list[memoryview]]:
        """Yields the frames at these places, in this order, about CHUNK_BYTES at a time; use each before the next."""
        starts = np.frombuffer(self._starts, np.int64)
        begin, end = starts[rows], starts[rows + 1]
        chunk = np.cumsum(end - begin) // CHUNK_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(rows)]
        with (
            open(self._path, "rb") as file,
            closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
            memoryview(mapped) as view,
        ):
            for first, last in pairwise(cuts):
                places = zip(begin[first:last].tolist(), end[first:last].tolist(), strict=True)
                chunk_frames = [view[start:stop] for start, stop in places]
                yield chunk_frames
                for frame in chunk_frames:
                    frame.release()
