"""Values: one column of neighbouring rows as a feature holds it, and which of them are missing or bad."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Values:
    """The values of a column; where one is missing or bad stands 0, or null in an array of strings."""

    values: NDArray[Any] | pa.Array
    """[n, *shape] in the feature's dtype; strings are an Arrow array of n strings."""
    missing: Mask
    """[n], where there is no value."""
    bad: dict[int, str]
    """What is wrong with a value, by its place: the end of a sentence."""

    def __len__(self) -> int:
        return len(self.missing)


def nulls(array: pa.Array) -> Mask:
    """Returns where an array has no value, bool [n]."""
    return as_mask(pc.is_null(array))


def as_mask(flags: pa.Array) -> Mask:
    """Returns an Arrow array of bools as a mask, bool [n]; null is False."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False).astype(bool, copy=False)


def reasons(bad: Mask, reason: Callable[[int], str]) -> dict[int, str]:
    """Returns `reason(place)` of every place that is bad."""
    return {int(place): reason(int(place)) for place in np.flatnonzero(bad)}
