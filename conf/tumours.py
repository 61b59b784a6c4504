"""Tumours of the breast, from scikit-learn: 30 measures of the cells of each, and whether it is malignant."""

from collections.abc import Iterator
from typing import Any

from sklearn.datasets import load_breast_cancer


def read() -> Iterator[dict[str, Any]]:
    """Yields the measures by name and {"label": "benign" or "malignant"}, in the order of the file."""
    found = load_breast_cancer()
    for values, label in zip(found.data, found.target, strict=True):
        measures = dict(zip(found.feature_names.tolist(), values.tolist(), strict=True))
        yield {**measures, "label": str(found.target_names[label])}
