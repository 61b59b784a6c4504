"""The digits: scikit-learn's csv as a source."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.download.digits import DIGITS_FILE
from tasks.errors import DataError
from tasks.prepare.manifest import Feature
from tasks.prepare.source import Batch, SourceSchema

SIDE = 8  # pixels
BRIGHTEST = 16  # the file counts the set pixels of a 4x4 cell
NUM_CLASSES = 10


class Digits:
    """The digits as a source: image [8, 8, 1] uint8 in 0..16, label 0..9, id = row of the file."""

    schema = SourceSchema(
        features={"image": Feature.of("tensor", "uint8", (SIDE, SIDE, 1))},
        inputs=("image",),
        label_map=tuple(map(str, range(NUM_CLASSES))),
    )
    notes: tuple[str, ...] = ()

    def __init__(self, directory: Path) -> None:
        """Reads the file in the raw directory; raises DataError if it is no such table."""
        table = _read(directory)
        self._pixels, self._labels = table[:, :-1], table[:, -1]

    def read(self) -> Iterator[Batch]:
        """Yields the digits in the order of the file."""
        rows = np.arange(len(self._labels))
        yield Batch(
            rows=rows,
            keys=[f"{DIGITS_FILE}:{row + 1}" for row in rows],
            labels=self._labels,
            columns={"image": self._pixels.reshape(-1, SIDE, SIDE, 1).astype(np.uint8)},
        )


def _read(directory: Path) -> NDArray[np.int64]:
    """Returns [1797, 65]: pixels and label of each row."""
    file = directory / DIGITS_FILE
    try:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64, ndmin=2)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{file}: no readable csv of whole numbers ({error}); delete {directory} and run again"
        ) from error
    if table.shape[1] != SIDE * SIDE + 1:
        raise DataError(
            f"{file}: has {table.shape[1]} columns, not {SIDE * SIDE} pixels and a label; "
            f"delete {directory} and run again"
        )
    pixels, labels = table[:, :-1], table[:, -1]
    for what, values, highest in (("pixel", pixels, BRIGHTEST), ("label", labels, NUM_CLASSES - 1)):
        if values.min() < 0 or values.max() > highest:
            raise DataError(
                f"{file}: has a {what} outside 0..{highest} (they span {values.min()}..{values.max()}); "
                f"delete {directory} and run again"
            )
    return table
