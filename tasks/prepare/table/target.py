"""The target of a table: the columns that are learned, and how their values become Targets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.faults import Faults
from tasks.prepare.labels import label_index, label_map, labels_of, multi_hot, one_hot_labels, split_names, why_no_class
from tasks.prepare.manifest import Feature
from tasks.prepare.source import LABEL_FEATURE
from tasks.prepare.table.facts import Facts
from tasks.prepare.table.rows import Rows
from tasks.prepare.table.usage import Usage
from tasks.prepare.targets import Targets, multi_hot_feature, numbers_feature
from tasks.sources import TableSource
from tasks.target import MultiLabelTarget, RegressionTarget, Target

_TYPES = {"text": str, "int": int, "float": float, "bool": bool, "list": str}
"""Of the values of a target of classes, by the meaning of its column; a list is one-hot, its classes are names."""
_EXACT = 2**53  # the whole numbers up to here are float64, each of them


class TableTarget(Protocol):
    """What is learned, once all rows have been looked at."""

    @property
    def usages(self) -> tuple[Usage, ...]:
        """The columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """The label map."""

    @property
    def feature(self) -> Feature:
        """How a value is stored."""

    def read(self, rows: Rows, faults: Faults) -> Targets:
        """Returns the targets of n rows, after noting the bad ones."""


def target_columns(target: Target, source: TableSource, usages: Sequence[Usage]) -> list[Usage]:
    """Returns the columns of a target that must be looked at before they are read.

    Raises ConfigError if data.target is not what such columns can hold.
    """
    where = "data.source.target: " + ", ".join(repr(usage.name) for usage in usages)
    kind, meanings = f"data.target.kind={target.kind}", {usage.form.meaning for usage in usages}
    if len(usages) > 1 and "list" in meanings:
        raise ConfigError(f"{where} hold lists; take one column of lists, or several of numbers")
    if any(usage.form.shape not in ((), None) for usage in usages):
        raise ConfigError(f"{where} has values of more than one dimension; choose another column")
    if isinstance(target, RegressionTarget):
        if not meanings <= {"int", "float", "bool", "list"}:
            raise ConfigError(
                f"{where} holds no numbers, which {kind} learns; choose another column, or set its type in "
                "data.source.types"
            )
        if source.classes is not None:
            raise ConfigError(f"data.source.classes: {kind} has none; leave them out")
    elif isinstance(target, MultiLabelTarget):
        if len(usages) > 1 and source.classes is not None:
            raise ConfigError(f"data.source.classes: the classes of {where} are named by the columns; leave them out")
        if not meanings <= ({"int", "float", "bool"} if len(usages) > 1 else {"text", "list"}):
            raise ConfigError(
                f"{where}: {kind} takes one column of text with the names of classes between "
                f"{target.delimiter!r}, one of lists of 0 and 1, or several columns of 0 and 1"
            )
    else:
        if len(usages) > 1:
            raise ConfigError(
                f"{where}: {kind} has one column; take data.target.kind=multi_label or regression, or one of them"
            )
        if not meanings <= _TYPES.keys():
            (usage,) = usages
            raise ConfigError(
                f"data.source.target: {usage.name!r} is {usage.wanted or usage.type}, which names no class; choose "
                f"another column, or, if each of its values is a class, set data.source.types={{{usage.name}: string}}"
            )
    named = len(usages) > 1 or source.classes is not None or target.kind == "regression"
    return list(usages) if "list" in meanings or not named else []


def open_target(target: Target, source: TableSource, usages: Sequence[Usage], facts: Facts) -> TableTarget:
    """Returns how the columns are read; raises ConfigError if data.source.classes do not fit them."""
    usages = tuple(replace(usage, length=facts.lengths.get(usage.name)) for usage in usages)
    first = usages[0]
    is_list = first.form.meaning == "list"
    if isinstance(target, RegressionTarget):
        several = tuple(f"{first.name}.{place}" for place in range(first.length or 0))
        return _Numbers(usages, several if is_list else tuple(usage.name for usage in usages))
    if len(usages) > 1:
        return _Flags(usages, tuple(usage.name for usage in usages))
    classes = _list_classes(first, source) if is_list else label_map(facts.classes, first.name, source.classes)
    if not isinstance(target, MultiLabelTarget):
        return _Class(usages, classes, label_index(classes, _TYPES[first.form.meaning]))
    return _Flags(usages, classes) if is_list else _Names(usages, classes, target.delimiter)


def _list_classes(usage: Usage, source: TableSource) -> tuple[str, ...]:
    classes = label_map(range(usage.length or 0), usage.name, source.classes)
    if len(classes) != usage.length:
        raise ConfigError(
            f"data.source.classes: has {len(classes)} names, but the lists of {usage.name!r} have {usage.length} "
            f"values; give one name a value"
        )
    return classes


@dataclass(frozen=True)
class _Class:
    """A column of classes, or of one-hot lists: int64 [n]."""

    usages: tuple[Usage, ...]
    names: tuple[str, ...]
    index: dict[str, int]
    """The label of each class, by what `class_name` calls it; of no meaning to a one-hot target."""
    feature: Feature = LABEL_FEATURE

    def read(self, rows: Rows, faults: Faults) -> NDArray[np.int64]:
        (usage,) = self.usages
        values = usage.checked(rows, faults)
        reason = ""
        if usage.form.meaning == "list":
            labels = one_hot_labels(values.values)
            reason = "is not one-hot: one value 1 and all others 0"
        elif isinstance(values.values, pa.Array):
            encoded = values.values.dictionary_encode()
            known = np.array([*(self.index.get(name, -1) for name in encoded.dictionary.to_pylist()), -1], np.int64)
            labels = known[pc.fill_null(encoded.indices, len(known) - 1).to_numpy()]
        else:
            labels = labels_of(
                values.values.astype(bool) if usage.form.meaning == "bool" else values.values, self.index
            )
        for place in np.flatnonzero(labels < 0).tolist():
            faults.add(usage.name, {place: reason or why_no_class(rows.columns[usage.name][place].as_py())})
        return labels


@dataclass(frozen=True)
class _Flags:
    """Columns of 0 and 1, or one of lists of these: uint8 [n, num_classes]."""

    usages: tuple[Usage, ...]
    names: tuple[str, ...]

    @property
    def feature(self) -> Feature:
        return multi_hot_feature(len(self.names))

    def read(self, rows: Rows, faults: Faults) -> NDArray[np.uint8]:
        columns = []
        for usage in self.usages:
            given = usage.checked(rows, faults).values
            wrong = np.flatnonzero(((given != 0) & (given != 1)).reshape(len(given), -1).any(axis=1)).tolist()
            reason = "holds a value that is not 0 or 1"
            faults.add(usage.name, {row: reason if given.ndim > 1 else f"is {given[row]}, not 0 or 1" for row in wrong})
            columns.append((given == 1).astype(np.uint8).reshape(len(given), -1))
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class _Names:
    """A column of text with names of classes: uint8 [n, num_classes]."""

    usages: tuple[Usage, ...]
    names: tuple[str, ...]
    delimiter: str

    @property
    def feature(self) -> Feature:
        return multi_hot_feature(len(self.names))

    def read(self, rows: Rows, faults: Faults) -> NDArray[np.uint8]:
        (usage,) = self.usages
        values = usage.checked(rows, faults, may_miss=True)  # a CSV has no other way to say that there is none
        hot, wrong = multi_hot([split_names(text, self.delimiter) for text in values.values.tolist()], self.names)
        faults.add(usage.name, wrong)
        return hot


@dataclass(frozen=True)
class _Numbers:
    """Columns of numbers, or one of lists of these: float32 or float64 [n, num_numbers]."""

    usages: tuple[Usage, ...]
    names: tuple[str, ...]

    @property
    def feature(self) -> Feature:
        is_single = all(usage.form.dtype == "float32" for usage in self.usages)
        return numbers_feature(len(self.names), "float32" if is_single else "float64")

    def read(self, rows: Rows, faults: Faults) -> NDArray[Any]:
        columns = []
        for usage in self.usages:
            given = usage.checked(rows, faults).values
            if given.dtype.kind == "i":
                large = np.flatnonzero((np.abs(given) > _EXACT).reshape(len(given), -1).any(axis=1))
                faults.add(usage.name, dict.fromkeys(large.tolist(), "is a whole number that float64 cannot hold"))
            columns.append(given.astype(self.feature.dtype).reshape(len(given), -1))
        return np.concatenate(columns, axis=1)
