"""Judged: the examples of a split with all that a model and its head say of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.targets import describe


@dataclass(frozen=True)
class Judged:
    """One row an example, in storage order."""

    ids: NDArray[np.int64]
    """[n]."""
    targets: NDArray[Any]
    """[n, ...], as `tasks.prepare.targets` has them."""
    outputs: NDArray[Any]
    """[n, num_outputs] of the model."""
    predictions: NDArray[np.float64]
    """[n, num_classes] probabilities, or [n, num_numbers] in their own unit."""
    decisions: NDArray[Any]
    """[n, ...] as targets."""
    losses: NDArray[np.float64]
    """[n], whose mean is the loss."""


def in_words(target: Any, label_map: Sequence[str]) -> str:
    """Returns a row of targets or decisions: 'cat', 'cat, dog', '(none)', or of a regression '0.5, 12.25'."""
    if np.ndim(target) and target.dtype.kind == "f":
        return ", ".join(f"{value:.9g}" for value in target.tolist())
    return describe(target, label_map)
