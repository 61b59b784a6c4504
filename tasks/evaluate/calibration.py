"""Calibration: how often what is said with some confidence is right."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve

from tasks.evaluate.report import Calibration, CalibrationBin

NUM_BINS = 10  # of equal width


def confidences(
    kind: str, targets: NDArray[Any], probabilities: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Returns [m] whether it is so, and [m] with which probability it was said to be.

    Of several classes that is the class with the highest, of two the positive one, of any number each of each example.
    """
    match kind:
        case "multiclass":
            return probabilities.argmax(axis=1) == targets, probabilities.max(axis=1)
        case "binary":
            return targets == 1, probabilities[:, 1]
        case _:
            return targets.ravel() == 1, probabilities.ravel()


def calibration_of(right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> Calibration:
    """Returns the calibration in NUM_BINS bins, each with its upper bound and without its lower; the first has both.

    Bins, accuracies and mean confidences are those of scikit-learn's calibration_curve.
    """
    confidence = np.clip(confidence, 0, 1)  # a softmax may be over 1 by its rounding
    accuracies, means = calibration_curve(right, confidence, pos_label=True, n_bins=NUM_BINS)
    bounds = np.linspace(0, 1, NUM_BINS + 1)
    counts = np.bincount(np.searchsorted(bounds[1:-1], confidence), minlength=NUM_BINS)
    places = np.flatnonzero(counts)
    bins = tuple(
        CalibrationBin(
            low=place / NUM_BINS,
            high=(place + 1) / NUM_BINS,
            num_examples=counts[place],
            mean_confidence=mean,
            accuracy=accuracy,
        )
        for place, mean, accuracy in zip(places, means, accuracies, strict=True)
    )
    return Calibration(ece=float(np.abs(accuracies - means) @ counts[places] / len(confidence)), bins=bins)
