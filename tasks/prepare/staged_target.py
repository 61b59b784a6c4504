"""The target of staged examples: how what a TFDS builder or a reader of the user's yielded becomes Targets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.config import DataConfig
from tasks.download.staged import StagedSchema
from tasks.prepare.faults import Faults
from tasks.prepare.labels import label_index, label_map, labels_of, multi_hot, split_names, why_no_class
from tasks.prepare.manifest import Feature
from tasks.prepare.source import LABEL_FEATURE
from tasks.prepare.targets import Targets, multi_hot_feature, numbers_feature
from tasks.sources import ArraySource, TfdsSource
from tasks.target import MultiLabelTarget

_TYPES = {"string": str, "class": str, "int64": int, "float64": float, "bool": bool}
"""Of the values of a target that is one class."""


class StagedTarget(Protocol):
    """What is learned."""

    @property
    def names(self) -> tuple[str, ...]:
        """The label map."""

    @property
    def feature(self) -> Feature:
        """How a value is stored."""

    def read(self, values: pa.ChunkedArray, faults: Faults) -> Targets:
        """Returns the targets of n examples, after noting the bad ones; null is what a bad example has."""


def open_staged_target(config: DataConfig, staged: StagedSchema, values: Callable[[], Iterator[Any]]) -> StagedTarget:
    """Returns how the target is read; `values` yields those of all good examples, each at least once.

    Raises ConfigError if it holds no classes where there should be some.
    """
    source = config.source
    assert isinstance(source, ArraySource | TfdsSource)
    name, given = source.target, source.classes if isinstance(source, ArraySource) else None
    if staged.target == "numbers":
        length = len(next(values()))
        return _Numbers((name,) if length == 1 else tuple(f"{name}.{place}" for place in range(length)))
    if isinstance(config.target, MultiLabelTarget):
        delimiter = config.target.delimiter
        found = (each for value in values() for each in _names(value, delimiter) if each)
        return _Names(name, label_map(found, name, given), delimiter)
    classes = staged.classes if staged.classes is not None else label_map(values(), name, given)
    return _Class(name, classes, staged.target == "class", label_index(classes, _TYPES[staged.target]))


@dataclass(frozen=True)
class _Class:
    """One class: int64 [n]."""

    target: str
    names: tuple[str, ...]
    is_index: bool
    """Whether the values are labels already."""
    index: dict[str, int]
    feature: Feature = LABEL_FEATURE

    def read(self, values: pa.ChunkedArray, faults: Faults) -> NDArray[np.int64]:
        if self.is_index:
            labels: NDArray[np.int64] = pc.fill_null(values, -1).to_numpy()
            outside = np.flatnonzero((labels < 0) | (labels >= len(self.names)))
            faults.add(self.target, {int(row): self._why_outside(int(labels[row])) for row in outside})
            return labels
        items = values.to_pylist()
        labels = labels_of(items, self.index)
        faults.add(self.target, {row: why_no_class(items[row]) for row in np.flatnonzero(labels < 0).tolist()})
        return labels

    def _why_outside(self, label: int) -> str:
        number = len(self.names)
        unlabelled = " (so marks TFDS an example without a label)" if label == -1 else ""
        return f"is {label}, not one of the {number} classes 0..{number - 1}{unlabelled}"


@dataclass(frozen=True)
class _Names:
    """Any number of classes: uint8 [n, num_classes]."""

    target: str
    names: tuple[str, ...]
    delimiter: str

    @property
    def feature(self) -> Feature:
        return multi_hot_feature(len(self.names))

    def read(self, values: pa.ChunkedArray, faults: Faults) -> NDArray[np.uint8]:
        hot, wrong = multi_hot([_names(value, self.delimiter) for value in values.to_pylist()], self.names)
        faults.add(self.target, wrong)
        return hot


@dataclass(frozen=True)
class _Numbers:
    """Numbers: float64 [n, num_numbers]."""

    names: tuple[str, ...]

    @property
    def feature(self) -> Feature:
        return numbers_feature(len(self.names), "float64")

    def read(self, values: pa.ChunkedArray, faults: Faults) -> NDArray[np.float64]:
        none = [0.0] * len(self.names)
        return np.array([none if value is None else value for value in values.to_pylist()], np.float64)


def _names(value: str | list[str] | None, delimiter: str) -> list[str]:
    return value if isinstance(value, list) else split_names(value, delimiter)
