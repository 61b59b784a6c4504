"""The tally: what is known of a source's examples besides their values, gathered batch by batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import DataError
from tasks.prepare.manifest import BadExample
from tasks.prepare.source import Batch

NUM_SHOWN = 10  # bad examples that an error lists


class Tally:
    """Of n good examples so far, in the order of the source; a few bytes each."""

    def __init__(self) -> None:
        """Begins with none."""
        self.num_bad = 0
        self.first_bad: list[BadExample] = []
        self._labels: list[NDArray[Any]] = []
        self._hashes: list[NDArray[np.uint64]] = []
        self._split_by: list[Sequence[str] | NDArray[np.int64]] = []

    def add(self, batch: Batch, hashes: NDArray[np.uint64]) -> None:
        """Takes in a batch and the hashes of its keys."""
        self.num_bad += len(batch.bad)
        self.first_bad += batch.bad[: NUM_SHOWN - len(self.first_bad)]
        if len(batch.rows):
            self._labels.append(batch.labels)
            self._hashes.append(hashes)
            if batch.split_by is not None:
                self._split_by.append(batch.split_by)

    @property
    def num_examples(self) -> int:
        """Good and bad ones."""
        return sum(map(len, self._labels)) + self.num_bad

    @property
    def labels(self) -> NDArray[Any]:
        """What is learned, as in a Batch: [n, ...]."""
        return _join(self._labels, np.zeros(0, np.int64))

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """[n, 2], of the keys."""
        return _join(self._hashes, np.zeros((0, 2), np.uint64))

    @property
    def split_by(self) -> NDArray[np.int64] | list[str] | None:
        """n values that data.splits goes by."""
        if not self._split_by:
            return None
        if isinstance(self._split_by[0], np.ndarray):
            return np.concatenate(self._split_by)
        return [str(value) for part in self._split_by for value in part]

    def check(self, max_bad_fraction: float) -> None:
        """Raises DataError if there is no good example, or more than this share is bad; it names the first bad ones."""
        total = self.num_examples
        if not total:
            raise DataError("data.source: holds no examples; give a source that has some")
        if self.num_bad / total > max_bad_fraction or total == self.num_bad:
            listed = "".join(f"\n  {describe_bad(bad)}" for bad in self.first_bad)
            more = f"\n  and {self.num_bad - len(self.first_bad)} more" if self.num_bad > len(self.first_bad) else ""
            raise DataError(
                f"data.max_bad_fraction={max_bad_fraction:g}: {self.num_bad} of {total} examples cannot be used; mend "
                f"or remove them, or raise it to leave them out:{listed}{more}"
            )


def _join(parts: list[NDArray[Any]], none: NDArray[Any]) -> NDArray[Any]:
    """Returns the parts as one array, which takes their place: of millions of examples two copies would be large."""
    if len(parts) != 1:
        parts[:] = [np.concatenate(parts or [none])]
    return parts[0]


def describe_bad(bad: BadExample) -> str:
    """Returns where a bad example is and what is wrong with it, in a clause."""
    row = "" if bad.row is None else f", row {bad.row}"
    column = "" if bad.column is None else f", column {bad.column}"
    return f"{bad.path}{row}{column} {bad.reason}"
