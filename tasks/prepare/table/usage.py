"""Usage: one column in one role, and how its values are read in every file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.errors import ConfigError
from tasks.prepare.faults import Faults
from tasks.prepare.table.columns import Form, convert, form_of, plain
from tasks.prepare.table.rows import Rows
from tasks.prepare.table.values import Values
from tasks.sources import ColumnType


@dataclass(frozen=True)
class Usage:
    """How a column is read; the same in all files."""

    name: str
    type: pa.DataType
    """Of the first file in which it has values; that of others may differ where the form is the same."""
    wanted: ColumnType | None
    form: Form
    decimal_point: str
    length: int | None = None
    """Of lists, once it is known."""

    def convert(self, array: pa.Array) -> Values:
        """Returns the values of an array of the column from any file."""
        if pa.types.is_null(plain(array.type)):
            array = pa.nulls(len(array), self.type)
        return convert(array, self.wanted, length=self.length, decimal_point=self.decimal_point)

    def checked(self, rows: Rows, faults: Faults, *, may_miss: bool = False) -> Values:
        """Returns the column's values, after noting the bad ones, and those that are missing but may not be."""
        values = self.convert(rows.columns[self.name])
        faults.add(self.name, values.bad)
        if not may_miss and values.missing.any():
            faults.add(self.name, dict.fromkeys(np.flatnonzero(values.missing).tolist(), "is missing"))
        return values


def usage_of(
    name: str,
    types: Mapping[str, Mapping[str, pa.DataType]],
    wanted: ColumnType | Callable[[pa.DataType], ColumnType | None] | None,
    decimal_point: str = ".",
) -> Usage:
    """Returns how a column is read, by its types in the files.

    `wanted` may depend on the type. Raises ConfigError if a file has no such column, if a type has no rule, or if the
    column would become something else in one file than in another.
    """
    found: tuple[str, Usage] | None = None
    for file, columns in types.items():
        if name not in columns:
            other = next(other for other, columns in types.items() if name in columns)
            raise ConfigError(
                f"data.source: column {name!r} of {other} is not in {file}; leave the column out with "
                f"data.source.columns, or one of the files with data.source.path"
            )
        type = columns[name]
        if pa.types.is_null(plain(type)):
            continue
        as_type = wanted(type) if callable(wanted) else wanted
        form = form_of(type, as_type, f"data.source: column {name!r} of {file}")
        if found is None:
            found = file, Usage(name, type, as_type, form, decimal_point)
        elif form != found[1].form:
            raise ConfigError(
                f"data.source: column {name!r} is {found[1].type} in {found[0]} but {type} in {file}; write one of the "
                f"files anew, set its type in data.source.types, or leave it out with data.source.columns"
            )
    if found is None:
        raise ConfigError(why_empty(name))
    return found[1]


def why_empty(name: str) -> str:
    """Returns what is wrong with a column that has no value anywhere."""
    return f"data.source: column {name!r} has no value in any row; leave it out with data.source.columns"
