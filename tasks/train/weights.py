"""Weights: how far the variables of two checkpoints lie apart."""

from pathlib import Path

import numpy as np
from safetensors import safe_open

from tasks.files import Record, verify
from tasks.train.checkpoint import VARIABLES


class WeightDifference(Record):
    """How far two checkpoints lie apart."""

    num_variables: int
    """Of both: the model's weights, their averages and the optimizer's state."""
    num_different: int
    """That differ in a bit, or that only one of the two has."""
    largest: float
    """The largest absolute difference of two values of one place."""
    variable: str
    """Path of the variable with that difference; the first that differs if no two values can be subtracted."""


def compare_checkpoints(first: Path, second: Path) -> WeightDifference:
    """Returns how far apart the variables of two checkpoints are, compared by place, path, shape and type.

    Reads one variable at a time. Raises DataError if one of the checkpoints is damaged or not there.
    """
    for checkpoint in (first, second):
        verify(checkpoint)
    num_different, largest, furthest = 0, 0.0, ""
    with (
        safe_open(first / VARIABLES, framework="numpy") as before,
        safe_open(second / VARIABLES, framework="numpy") as after,
    ):
        names = {*before.keys(), *after.keys()}
        both = {*before.keys()} & {*after.keys()}
        for name in sorted(names):
            if name in both:
                one, other = before.get_tensor(name), after.get_tensor(name)
                if one.tobytes() == other.tobytes():
                    continue
                apart = _largest_difference(one, other)
            else:
                apart = 0.0
            num_different += 1
            if apart > largest or not furthest:
                largest, furthest = max(apart, largest), name
    return WeightDifference(
        num_variables=len(names), num_different=num_different, largest=largest, variable=_path(furthest)
    )


def _largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the largest absolute difference, in float64; infinite if a value of one alone is not finite."""
    before, after = one.astype(np.float64), other.astype(np.float64)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(before - after))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0))


def _path(name: str) -> str:
    """Returns the path of a variable in what `snapshot` calls it: '0003 dense/kernel (128, 10) float32'."""
    return name.partition(" ")[2].partition(" (")[0]
