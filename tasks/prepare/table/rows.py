"""Rows: neighbouring rows of one file of a table, as they stand there, and the files that hold them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.prepare.manifest import BadExample
from tasks.sources import ColumnType


@dataclass(frozen=True)
class Rows:
    """Rows that follow each other; those that cannot be read stand apart, so that `numbers` may have gaps."""

    numbers: NDArray[np.int64]
    """[n], each row's place in its file, counted from 1 without the header, over good and bad ones."""
    columns: dict[str, pa.Array]
    """n values of each column that was asked for."""
    bad: tuple[BadExample, ...] = ()
    """The rows that cannot be read."""


class TableFiles(Protocol):
    """The files of a table that have one format, opened."""

    @property
    def types(self) -> Mapping[str, Mapping[str, pa.DataType]]:
        """The type of each column, by file and column; structs are flattened to `a.b`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should be told."""

    def infer(self, names: Sequence[str]) -> dict[str, ColumnType]:
        """Returns the types of columns for which `types` does not say all, after looking at all rows if it must.

        Raises ConfigError if values do not go together, or if a type would change them.
        """

    def read(self, file: str, names: Sequence[str]) -> Iterator[Rows]:
        """Yields all rows of a file in order with the columns `names`, about 16 MB at once at most."""
