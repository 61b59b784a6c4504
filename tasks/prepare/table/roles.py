"""Roles: which column of a table is an input, the target, the id, or what the splits go by."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.config import DataConfig
from tasks.errors import ConfigError
from tasks.prepare.source import ID, LABEL
from tasks.sources import TableSource
from tasks.splits import GroupSplits, OfficialSplits, TimeSplits


@dataclass(frozen=True)
class Roles:
    """Names of columns as the source has them."""

    inputs: tuple[str, ...]
    id: str | None
    split: str | None
    """The group or the time; None for splits that go by something else."""


def assign_roles(config: DataConfig, source: TableSource, columns: Sequence[str]) -> Roles:
    """Returns the roles of the columns of a table.

    Raises ConfigError for a name that no column has, for roles that exclude each other, and for splits that a table
    cannot have.
    """
    splits = config.splits
    if isinstance(splits, OfficialSplits):
        raise ConfigError(
            "data.splits.kind=official: a table has no official splits; use kind: file with a pattern for each split "
            "(train: 'train/*'), or fraction"
        )
    split = splits.column if isinstance(splits, GroupSplits | TimeSplits) else None
    fields: dict[str, list[str]] = {
        "data.source.target": list(source.targets),
        "data.source.id": [source.id] if source.id is not None else [],
        "data.source.columns": source.columns or [],
        "data.source.text": source.text,
        "data.source.types": list(source.types),
        "data.splits.column": [split] if split is not None else [],
    }
    for field, names in fields.items():
        for name in names:
            below = any(column.startswith(f"{name}.") for column in columns)
            if name not in columns and not (below and field == "data.source.columns"):
                raise ConfigError(f"{field}: there is no column {name!r}{_instead(name, columns)}")
    for index, name in enumerate(source.targets):
        if name in source.targets[:index]:
            raise ConfigError(f"data.source.target: {name!r} is given twice; keep one")
    if source.id in source.targets:
        raise ConfigError(f"data.source.id: {source.id!r} is the target too; choose another column, or none")
    inputs = _inputs(source, columns, {*source.targets, source.id, split})
    for name in source.text:
        if name not in inputs:
            raise ConfigError(f"data.source.text: {name!r} is no input; add it to data.source.columns, or leave it out")
        if source.types.get(name, "string") != "string":
            raise ConfigError(
                f"data.source.text: {name!r} is {source.types[name]} in data.source.types; leave it out of one of them"
            )
    return Roles(inputs, source.id, split)


def _inputs(source: TableSource, columns: Sequence[str], others: set[str | None]) -> tuple[str, ...]:
    if source.columns is None:
        inputs = tuple(name for name in columns if name not in others)
        if not inputs:
            raise ConfigError(
                "data.source: there is no column left as an input; name the inputs in data.source.columns"
            )
        for name in inputs:
            if name in (ID, LABEL):
                hint = (
                    "set data.source.id=id if it names the row"
                    if name == ID
                    else "set data.source.target=label if it is what is learned"
                )
                raise ConfigError(
                    f"data.source: a column is named {name!r}, like the one that millstream adds; {hint}, "
                    "or list the inputs in data.source.columns"
                )
        return inputs
    inputs = tuple(
        column
        for name in source.columns
        for column in ([name] if name in columns else [each for each in columns if each.startswith(f"{name}.")])
    )
    for index, name in enumerate(inputs):
        if name in inputs[:index]:
            raise ConfigError(f"data.source.columns: {name!r} is given twice; keep one")
    for name in source.targets:
        if name in inputs:
            raise ConfigError(f"data.source.columns: {name!r} is the target, which no input may be; leave it out")
    return inputs


def _instead(name: str, columns: Sequence[str]) -> str:
    if len(columns) == 1 and re.search(r"[,;|\t]", columns[0]):  # a CSV with another delimiter
        return f", only {columns[0]!r}; is data.source.delimiter what stands between two values?"
    close = difflib.get_close_matches(name, columns, n=1)
    there = ", ".join(columns[:30]) + (f" and {len(columns) - 30} more" if len(columns) > 30 else "")
    return f"; did you mean {close[0]!r}? There are {there}" if close else f"; there are {there}"
