"""The spool: the frames of a source's examples in one file, as they come in, to be read in any order."""

import mmap
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.batches import CHUNK_BYTES, Frames

MAPPED_BYTES = 160 * 2**20  # a larger spool is not mapped: the pages that are read so count as memory of this process


class Places(NamedTuple):
    """Where frames lie in a spool, in any order."""

    starts: NDArray[np.int64]
    """[num_frames], offsets in bytes."""
    sizes: NDArray[np.int32]
    """[num_frames], in bytes."""


class SpoolWriter:
    """Takes in frames, of several threads at once; they lie on disk alone."""

    def __init__(self, path: Path) -> None:
        """Begins an empty spool in a new file."""
        self._path, self._end, self._turn = path, 0, threading.Lock()

    def __enter__(self) -> Self:
        self._file = open(self._path, "xb")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def append(self, frames: Frames) -> Places:
        """Adds frames and returns where they are."""
        with self._turn:
            self._file.write(frames.data)
            start, self._end = self._end, self._end + len(frames.data)
        return Places(start + np.cumsum(frames.sizes) - frames.sizes, frames.sizes)


@dataclass(frozen=True)
class Spool:
    """Frames in a file, to be read in any order."""

    path: Path
    places: Places

    def __len__(self) -> int:
        """Returns the number of frames."""
        return len(self.places.starts)

    def frames(self, rows: NDArray[np.int64]) -> Iterator[Frames]:
        """Yields the frames of these rows, in this order, about CHUNK_BYTES at a time; use each before the next."""
        starts, sizes = self.places.starts[rows], self.places.sizes[rows]
        chunk = np.cumsum(sizes) // CHUNK_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(rows)]
        buffer = memoryview(bytearray(max(int(sizes[first:last].sum()) for first, last in pairwise(cuts))))
        mapped = self._mapped
        with open(self.path, "rb", buffering=0) as file:
            descriptor = file.fileno()
            for first, last in pairwise(cuts):
                filled = 0
                for start, size in zip(starts[first:last].tolist(), sizes[first:last].tolist(), strict=True):
                    target = buffer[filled : filled + size]
                    if mapped is not None:
                        target[:] = mapped[start : start + size]
                    else:
                        num_read = os.preadv(descriptor, [target], start)
                        assert num_read == size, "a frame lies in the spool as it was written"
                    filled += size
                yield Frames(buffer[:filled], sizes[first:last])

    @cached_property
    def _mapped(self) -> memoryview | None:
        """All of a small file, mapped once: a read of each frame would cost a call of the kernel."""
        if self.places.sizes.sum() > MAPPED_BYTES:
            return None
        with open(self.path, "rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
