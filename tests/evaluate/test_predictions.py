"""Predictions: any reader of Parquet has them by name, and what is read again is what was written."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.evaluate.judged import Judged, in_words
from tasks.evaluate.predictions import read_predictions, write_predictions

IDS, LOSSES = np.array([7, 3]), np.array([0.25, 1 / 3])
CASES = {
    "one class": (np.array([2, 0]), np.array([0, 0]), ("a", "b", "ü"), ["ü", "a"], ["a", "a"]),
    "any classes": (
        np.array([[1, 0, 1], [0, 0, 0]], np.uint8),
        np.array([[0, 1, 0], [1, 1, 1]], np.uint8),
        ("a", "b", "ü"),
        [["a", "ü"], []],
        [["b"], ["a", "b", "ü"]],
    ),
    "one number": (np.array([[1e9 + 0.5], [2]]), np.array([[1.0], [1 / 3]]), ("x",), [1e9 + 0.5, 2], [1, 1 / 3]),
    "numbers": (
        np.array([[1, 2], [3, 4]], np.float32),
        np.array([[1.5, 2], [3, 1 / 3]]),
        ("x", "y"),
        [[1, 2], [3, 4]],
        [[1.5, 2], [3, 1 / 3]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_read_as_they_were_written(case, tmp_path):
    targets, decisions, names, true, predicted = CASES[case]
    is_number = "number" in case
    predictions = decisions if is_number else np.random.default_rng(0).random((2, 3))
    judged = Judged(IDS, targets, predictions, predictions, decisions, LOSSES)
    for file in ("one", "two"):
        write_predictions(tmp_path / file, judged, names)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    table = pq.read_table(tmp_path / "one")
    assert table.column_names == ["id", "target", "predicted", "loss", *([] if is_number else ["probabilities"])]
    assert [table[name].to_pylist() for name in ("id", "target", "predicted", "loss")] == [
        IDS.tolist(),
        true,
        predicted,
        LOSSES.tolist(),
    ]
    found = read_predictions(tmp_path / "one")
    for values, due in zip(found, (IDS, targets, predictions, LOSSES), strict=True):
        np.testing.assert_array_equal(values, due)
    assert found.targets.dtype.kind == targets.dtype.kind


def test_a_target_is_said_in_words():
    assert in_words(np.int64(1), ("no", "yes")) == "yes"
    assert in_words(np.array([1, 1], np.uint8), ("a", "b")) == "a, b"
    assert in_words(np.zeros(2, np.uint8), ("a", "b")) == "(none)"
    assert in_words(np.array([1000123.5, -0.25]), ("x", "y")) == "1000123.5, -0.25"
