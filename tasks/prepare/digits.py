"""The digits: scikit-learn's csv as Examples."""

import zlib
from pathlib import Path

import numpy as np

from tasks.download.digits import DIGITS_FILE
from tasks.errors import DataError
from tasks.prepare.examples import ID, LABEL, Examples
from tasks.prepare.manifest import Feature

SIDE = 8  # pixels
BRIGHTEST = 16  # the file counts the set pixels of a 4x4 cell
NUM_CLASSES = 10


def read_digits(directory: Path) -> Examples:
    """Returns the digits of a raw directory: image [8, 8, 1] uint8 in 0..16, label 0..9, id = row of the file.

    Raises DataError if the file is not such a table.
    """
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
    return Examples(
        columns={
            "image": pixels.reshape(-1, SIDE, SIDE, 1).astype(np.uint8),
            "label": labels,
            "id": np.arange(len(table)),
        },
        features={
            "image": Feature(shape=(SIDE, SIDE, 1), dtype="uint8", storage="raw_bytes"),
            "label": LABEL,
            "id": ID,
        },
        inputs=("image",),
        target="label",
        id="id",
        label_map=tuple(str(digit) for digit in range(NUM_CLASSES)),
    )
