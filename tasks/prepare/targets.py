"""Targets: what is learned of n examples, in one array whose type says of which kind they are.

Labels of one class are int64 [n], indices into the label map; of any number of classes uint8 [n, num_classes], 0 or 1;
numbers float32 or float64 [n, num_numbers].
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.manifest import Feature
from tasks.prepare.source import Batch, Source, SourceSchema
from tasks.target import BinaryTarget

Targets = NDArray[Any]
NUM_BANDS = 10  # of a number, in which a stratified split has its shares


def multi_hot_feature(num_classes: int) -> Feature:
    """Returns the feature of any number of classes."""
    return Feature(kind="label", shape=(num_classes,), dtype="uint8", storage="raw_bytes")


def numbers_feature(num_numbers: int, dtype: Any) -> Feature:
    """Returns the feature of numbers, float32 or float64."""
    return Feature(kind="label", shape=(num_numbers,), dtype=dtype, storage="raw_bytes")


def class_counts(targets: Targets, label_map: Sequence[str]) -> tuple[int, ...]:
    """Returns the examples of each class, in the order of the label map; of numbers there are none."""
    match targets.dtype.kind:
        case "i":
            return tuple(np.bincount(targets, minlength=len(label_map)).tolist())
        case "u":
            return tuple(targets.sum(axis=0, dtype=np.int64).tolist())
        case _:
            return ()


def strata(targets: Targets) -> NDArray[np.int64]:
    """Returns the group of each example in a stratified split, [n], of which each split has its share.

    It is the class; of several the rarest, for a frequent one comes out even by itself; of numbers the tenth of the
    first in which it lies.
    """
    match targets.dtype.kind:
        case "i":
            return targets
        case "u":
            num_classes = targets.shape[1]
            place = np.empty(num_classes, np.int64)
            place[np.argsort(targets.sum(axis=0, dtype=np.int64), kind="stable")] = np.arange(num_classes)
            return np.where(targets == 1, place, num_classes).min(axis=1, initial=num_classes)
        case _:
            cuts = np.quantile(targets[:, 0], np.arange(1, NUM_BANDS) / NUM_BANDS)
            return np.searchsorted(cuts, targets[:, 0], side="right").astype(np.int64)


def describe(target: Any, label_map: Sequence[str]) -> str:
    """Returns in words what is learned of one example, a row of Targets."""
    if np.ndim(target) == 0:
        return label_map[target]
    if target.dtype.kind == "u":
        return ", ".join(label_map[place] for place in np.flatnonzero(target).tolist()) or "(none)"
    return ", ".join(f"{name} {value:g}" for name, value in zip(label_map, target.tolist(), strict=True))


def two_classes(source: Source, target: BinaryTarget) -> Source:
    """Returns the source with the positive class as the second of its label map.

    Raises ConfigError if it has not two classes, or none of that name.
    """
    classes = source.schema.label_map
    if len(classes) != 2:
        raise ConfigError(
            f"data.target.kind=binary: the source has {len(classes)} class(es) ({', '.join(classes[:10])}), not two; "
            "take data.target.kind=multiclass"
        )
    if target.positive not in (None, *classes):
        raise ConfigError(
            f"data.target.positive={target.positive!r}: is no class of the source, which has {' and '.join(classes)}"
        )
    return _Swapped(source) if target.positive == classes[0] else source


class _Swapped:
    """A source whose two classes have changed places."""

    def __init__(self, source: Source) -> None:
        self._source = source
        schema = source.schema
        self.schema: SourceSchema = replace(schema, label_map=schema.label_map[::-1])

    @property
    def notes(self) -> tuple[str, ...]:
        return self._source.notes

    def read(self) -> Iterator[Batch]:
        for batch in self._source.read():
            yield replace(batch, labels=1 - batch.labels)
