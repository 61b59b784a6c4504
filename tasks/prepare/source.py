"""Source: the examples of a data set as they are read, one batch after another, good and bad."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.manifest import BadExample, Feature

LABEL, ID = "label", "id"
LABEL_FEATURE = Feature.of("label", "int64")
ID_FEATURE = Feature.of("id", "int64")

Column = NDArray[np.generic] | Sequence[bytes]
"""The values of one feature: [n, *shape] in its dtype; for bytes_list n bytes objects."""


@dataclass(frozen=True)
class SourceSchema:
    """What the examples of a source look like: known before the first is read, true of all of them."""

    features: dict[str, Feature]
    """The inputs and what marks their missing values; label and id are added by `prepare`."""
    inputs: tuple[str, ...]
    """Names of the features that go into the model, without the marks."""
    label_map: tuple[str, ...]
    """Class names; a label is an index into it. Of numbers to be learned their names."""
    target: Feature = LABEL_FEATURE
    """How what is learned is stored."""
    meanings: dict[str, str] = field(default_factory=dict)
    """What the values of a table's columns were before they were stored, by feature: a date is a number too."""


@dataclass(frozen=True)
class Part:
    """The files of a source that alone are read, though what an example looks like follows from all of them."""

    files: frozenset[str]
    """Paths below the source."""
    first_row: int
    """Row of their first example; the examples of the other files have those before it."""


@dataclass(frozen=True)
class Batch:
    """Neighbouring examples in the order of the source; bad ones stand apart, so that `rows` may have gaps."""

    rows: NDArray[np.int64]
    """[n], each example's place in the source, counted from 0 over good and bad ones (of a `Part` from its first row):
    its id."""
    keys: Sequence[str]
    """n names by which a person finds the example: a path below the source, or 'file:row'. They are unique."""
    labels: NDArray[Any]
    """What is learned, as `tasks.prepare.targets` has it: of one class int64 [n], indices into the label map."""
    columns: dict[str, Column]
    """The features of the schema."""
    split_by: Sequence[str] | NDArray[np.int64] | None = None
    """n values that data.splits goes by: the official split, the group or the file (str), or the time (int64; dates and
    timestamps in microseconds since 1970, UTC); None for fraction, which goes by the key."""
    bad: tuple[BadExample, ...] = field(default=())
    """The examples that cannot be used."""


class Source(Protocol):
    """An opened source; opening it reads no more than it takes to know the schema."""

    schema: SourceSchema

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should be told, a sentence each: files that were left out, what was inferred."""

    def read(self) -> Iterator[Batch]:
        """Yields all examples in the same order every time, about 16 MB of them at once at most."""
