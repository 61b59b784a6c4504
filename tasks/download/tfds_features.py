"""Features of a TFDS data set: which of them can be inputs or the target, and how they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.download.staged import SPLIT_BY, TARGET, WIDENED, SplitColumn, StagedSchema, check_names
from tasks.errors import ConfigError
from tasks.prepare.manifest import Feature
from tasks.sources import TfdsSource


@dataclass(frozen=True)
class Selected:
    """One feature that is read, and the column that it fills."""

    path: tuple[str, ...]
    """Its place in the nested features."""
    connector: Any
    """tfds.features.FeatureConnector."""
    column: str
    feature: Feature | None = None
    """What it is as an input; None: the target or the column of data.splits."""
    stored: str | None = None
    """Type of the target or of the column of data.splits, as of StagedSchema."""

    def convert(self, values: NDArray[Any]) -> tuple[Any, dict[int, str]]:
        """Returns a batch of values [n, ...] as the column has them, and what is wrong with those that do not fit."""
        if self.stored in ("string", "numbers"):
            return (_texts if self.stored == "string" else _numbers)(values)
        if self.feature is None:
            return values.astype({"class": "int64"}.get(str(self.stored), self.stored)), {}
        if self.feature.kind == "category":
            names = self.connector.names
            texts = {index: name.encode() for index, name in enumerate(names)}
            bad = {row: f"is {value}, which has no name" for row, value in enumerate(values) if value not in texts}
            return [texts.get(value) for value in values.tolist()], bad
        if self.feature.kind == "tensor":
            array = np.ascontiguousarray(values, np.dtype(self.feature.dtype).newbyteorder("<"))
            return [row.tobytes() for row in array], {}
        if self.feature.kind == "number":
            return values.astype(self.feature.dtype), {}
        return values, {}


def select(features: Any, source: TfdsSource, column: SplitColumn | None, *, kind: str) -> list[Selected]:
    """Returns the features that are read: inputs, target and what data.splits goes by.

    `kind` is data.target.kind. A feature in a group is named group_feature. Raises ConfigError if one that is named is
    not there, or cannot be what it is named for.
    """
    import tensorflow_datasets as tfds

    if not isinstance(features, tfds.features.FeaturesDict):
        raise ConfigError(f"data.source.name={source.name}: its examples are no dict of features; use another data set")
    found = {"_".join(path): (path, connector) for path, connector in _flatten(features)}
    others = {source.target} | ({column["name"]} if column is not None else set())
    inputs = source.inputs or [name for name in found if name not in others]
    wanted = {"data.source.inputs": inputs, "data.source.target": [source.target]}
    if column is not None:
        wanted["data.splits.column"] = [column["name"]]
    for setting, names in wanted.items():
        for name in names:
            if name not in found:
                raise ConfigError(f"{setting}: {source.name} has no feature {name!r}; it has {', '.join(found)}")
    if source.target in inputs:
        raise ConfigError(f"data.source.inputs: {source.target!r} is the target; leave it out")
    stored = {name: _input(found[name][1]) for name in inputs}
    reasons = {name: feature for name, feature in stored.items() if isinstance(feature, str)}
    if reasons:
        fitting = [name for name in inputs if name not in reasons]
        raise ConfigError(
            f"data.source.inputs: {source.name}: "
            + "; ".join(f"{name!r} is {reason}, which no input can be" for name, reason in reasons.items())
            + (f"; set data.source.inputs to some of {fitting}" if fitting else "; use another data set")
        )
    check_names(inputs, "list the others in data.source.inputs", chosen=source.inputs is not None)
    chosen = [Selected(*found[name], name, feature=stored[name]) for name in inputs]  # type: ignore[arg-type]
    chosen.append(Selected(*found[source.target], TARGET, stored=_target(source, found[source.target][1], kind)))
    if column is not None:
        chosen.append(Selected(*found[column["name"]], SPLIT_BY, stored=_split_by(column, found[column["name"]][1])))
    return chosen


def staged_schema(name: str, selected: list[Selected], splits: dict[str, int], notes: list[str]) -> StagedSchema:
    """Returns the schema of the staged examples."""
    columns = {one.column: one for one in selected}
    target = columns[TARGET]
    return StagedSchema.model_validate(
        {
            "name": name,
            "features": {one.column: one.feature for one in selected if one.feature is not None},
            "target": target.stored,
            "classes": target.connector.names if target.stored == "class" else None,
            "split_by": columns[SPLIT_BY].stored if SPLIT_BY in columns else None,
            "splits": splits,
            "notes": notes,
        }
    )


def _flatten(features: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    import tensorflow_datasets as tfds

    for name, connector in features.items():
        if isinstance(connector, tfds.features.FeaturesDict):
            yield from _flatten(connector, (*path, name))
        else:
            yield (*path, name), connector


def _input(connector: Any) -> Feature | str:
    """Returns what the feature is as an input, or why it can be none, as the end of 'it is ...'."""
    import tensorflow_datasets as tfds

    kind = type(connector).__name__
    if isinstance(connector, tfds.features.Image):
        channels = connector.shape[-1] or 3
        if type(connector) is not tfds.features.Image or connector.np_dtype != np.uint8 or channels not in (1, 3):
            return f"a {kind} of {channels} channel(s) of {connector.np_dtype}"
        return Feature.of("image", shape=(None, None, channels))
    if isinstance(connector, tfds.features.ClassLabel) and connector.names:
        return Feature.of("category")
    return _tensor_input(connector)


def _tensor_input(connector: Any) -> Feature | str:
    kind = type(connector).__name__
    shape, dtype = _single(connector)
    if shape is None or None in shape:
        return f"a {kind}, whose values have no fixed shape"
    if dtype == "string":
        return Feature.of("text") if shape == () else f"a {kind} of many texts"
    if dtype not in WIDENED:
        return f"a {kind} of {dtype}"
    if shape == ():
        return Feature.of("number", "int64" if WIDENED[dtype] == "uint8" else WIDENED[dtype])
    return Feature.of("tensor", WIDENED[dtype], shape)


def _target(source: TfdsSource, connector: Any, kind: str) -> str:
    """Returns the type of the target, as of StagedSchema."""
    import tensorflow_datasets as tfds

    shape, dtype = _single(connector)
    a_target = "a target is a ClassLabel, one text, one whole number or one bool"
    if kind == "regression":
        if shape is not None and len(shape) <= 1 and None not in shape and dtype in WIDENED:
            return "numbers"
        a_target = f"data.target.kind={kind} learns one number, or a fixed number of them"
    elif isinstance(connector, tfds.features.ClassLabel) and connector.names:
        return "class"
    elif shape == () and dtype in _CLASSES:
        return _CLASSES[dtype]
    raise ConfigError(
        f"data.source.target: {source.name}: {source.target!r} is a {type(connector).__name__}; {a_target}"
    )


def _split_by(column: SplitColumn, connector: Any) -> str:
    """Returns the type of the column that data.splits goes by."""
    shape, dtype = _single(connector)
    whole = dtype in _CLASSES and dtype not in ("string", "bool", "float32", "float64")
    if shape == () and column["use"] == "time" and whole:
        return "int64"
    if shape == () and column["use"] == "group" and (whole or dtype == "string"):
        return "string"
    raise ConfigError(
        f"data.splits.column={column['name']}: is a {type(connector).__name__}; a group is one text or whole number, "
        "a time one whole number"
    )


def _single(connector: Any) -> tuple[tuple[int | None, ...] | None, str]:
    """Returns shape and dtype of a feature that is one tensor; the shape is None for any other."""
    info = connector.get_tensor_info()
    if not hasattr(info, "np_dtype") or getattr(info, "sequence_rank", 0) > 1:
        return None, ""
    kind = np.dtype(info.np_dtype)
    return tuple(info.shape), "string" if kind.kind in "OSU" else kind.name


def _numbers(values: NDArray[Any]) -> tuple[list[list[float]], dict[int, str]]:
    numbers = values.reshape(len(values), -1).astype(np.float64)
    exact = (np.abs(numbers) <= 2**53) if values.dtype.kind in "iu" else np.isfinite(numbers)
    wrong = np.flatnonzero(~exact.all(axis=1)).tolist()
    return numbers.tolist(), {row: f"is {values[row]}, which is not finite or too large for float64" for row in wrong}


def _texts(values: NDArray[Any]) -> tuple[list[str | None], dict[int, str]]:
    texts: list[str | None] = []
    bad = {}
    for row, value in enumerate(values.tolist()):
        try:
            texts.append(value.decode() if isinstance(value, bytes) else str(value))
        except UnicodeDecodeError as error:
            texts.append(None)
            bad[row] = f"is not UTF-8 at byte {error.start + 1}"
    return texts, bad


_CLASSES = {
    **{name: "int64" for name, wide in WIDENED.items() if wide == "int64" or name == "uint8"},
    "bool": "bool",
    "float32": "float64",
    "float64": "float64",
    "string": "string",
}
