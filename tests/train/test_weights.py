"""Weights: how far two checkpoints lie apart, exactly."""

from pathlib import Path

import numpy as np
import pytest

from tasks.errors import DataError
from tasks.train.checkpoint import VARIABLES, Position, path_of, save
from tasks.train.weights import WeightDifference, compare_checkpoints

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)
FIRST = {
    "0000 dense/kernel (2, 3) float32": KERNEL,
    "0001 dense/bias (3,) float32": np.zeros(3, np.float32),
    "0002 adamw/iteration () int64": np.array(7),
}


def compared(folder: Path, second: dict[str, np.ndarray]) -> WeightDifference:
    """Returns what is found between FIRST and others."""
    for step, arrays in enumerate((FIRST, second)):
        save(folder, arrays, Position(step=step))
    return compare_checkpoints(path_of(folder, 0), path_of(folder, 1))


def test_the_same_bits_differ_in_nothing(tmp_path: Path) -> None:
    assert compared(tmp_path, FIRST) == WeightDifference(num_variables=3, num_different=0, largest=0, variable="")


def test_the_largest_difference_is_named_with_its_variable(tmp_path: Path) -> None:
    kernel = KERNEL.copy()
    kernel[1, 2] -= 0.5
    second = {**FIRST, "0000 dense/kernel (2, 3) float32": kernel, "0002 adamw/iteration () int64": np.array(10)}
    found = compared(tmp_path, second)
    assert found == WeightDifference(num_variables=3, num_different=2, largest=3, variable="adamw/iteration")


@pytest.mark.parametrize(
    ("value", "largest"), [(-0.0, 0.0), (1e-45, 2.0**-149), (np.inf, np.inf), (np.nan, np.inf)], ids=str
)
def test_a_single_bit_counts(tmp_path: Path, value: float, largest: float) -> None:
    bias = np.array([value, 0, 0], np.float32)
    found = compared(tmp_path, {**FIRST, "0001 dense/bias (3,) float32": bias})
    assert (found.num_different, found.largest, found.variable) == (1, largest, "dense/bias")


def test_a_variable_of_another_shape_is_not_the_same_one(tmp_path: Path) -> None:
    second = {name: value for name, value in FIRST.items() if "bias" not in name}
    found = compared(tmp_path, {**second, "0001 dense/bias (4,) float32": np.zeros(4, np.float32)})
    assert (found.num_variables, found.num_different, found.largest) == (4, 2, 0)
    assert found.variable == "dense/bias"


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    compared(tmp_path, FIRST)
    file = path_of(tmp_path, 1) / VARIABLES
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=VARIABLES):
        compare_checkpoints(path_of(tmp_path, 0), path_of(tmp_path, 1))
