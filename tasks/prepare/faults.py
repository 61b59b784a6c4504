"""Faults: the first thing that is wrong with each of neighbouring examples that cannot be used."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.manifest import BadExample


class Faults:
    """Of n examples, by their place; a place has the fault that was added first."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[str | None, str]] = {}

    def add(self, column: str | None, reasons: Mapping[int, str]) -> None:
        """Notes what is wrong with a column of some examples, by their place."""
        for place, reason in reasons.items():
            self._found.setdefault(place, (column, reason))

    def good(self, num_examples: int) -> NDArray[np.bool_]:
        """Returns which examples have no fault, bool [num_examples]."""
        good = np.ones(num_examples, bool)
        good[list(self._found)] = False
        return good

    def examples(self, paths: Sequence[str], rows: Sequence[int]) -> tuple[BadExample, ...]:
        """Returns the bad examples in their order, from the path and the row in it of all n."""
        return tuple(
            BadExample(path=paths[place], row=rows[place], column=column, reason=reason)
            for place, (column, reason) in sorted(self._found.items())
        )
