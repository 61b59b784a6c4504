"""Calibration: what is said with 80 % is right in 80 of 100 cases, or the error says by how much not."""

import numpy as np
import pytest

from tasks.evaluate.calibration import calibration_of, confidences


def test_the_error_is_the_mean_distance_weighted_by_examples():
    # By hand: four of 0.75 of which two are right, six of 1 of which all are, but for rounding.
    right = np.array([1, 1, 0, 0, 1, 1, 1, 1, 1, 1], bool)
    confidence = np.array([0.75] * 4 + [1 + 1e-16] * 6)
    found = calibration_of(right, confidence)
    assert [(each.num_examples, each.mean_confidence, each.accuracy) for each in found.bins] == [
        (4, 0.75, 0.5),
        (6, 1, 1),
    ]
    assert [bound for each in found.bins for bound in (each.low, each.high)] == pytest.approx([0.7, 0.8, 0.9, 1])
    assert found.ece == pytest.approx(0.25 * 4 / 10)


def test_bounds_belong_to_the_bin_below_as_scikit_learn_has_it():
    found = calibration_of(np.array([True, True]), np.array([0.5, 0.0]))
    assert [bound for each in found.bins for bound in (each.low, each.high)] == pytest.approx([0, 0.1, 0.4, 0.5])


def test_each_kind_of_target_has_its_confidence():
    several = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    right, confidence = confidences("multiclass", np.array([1, 0]), several)
    assert (right.tolist(), confidence.tolist()) == ([True, False], [0.5, 0.8])
    right, confidence = confidences("binary", np.array([1, 0]), np.array([[0.9, 0.1], [0.4, 0.6]]))
    assert (right.tolist(), confidence.tolist()) == ([True, False], [0.1, 0.6])
    right, confidence = confidences("multi_label", np.array([[1, 0]], np.uint8), np.array([[0.7, 0.2]]))
    assert (right.tolist(), confidence.tolist()) == ([True, False], [0.7, 0.2])
