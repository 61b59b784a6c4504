"""Inspection: what `millstream inspect` found in a source."""

from tasks.files import Record
from tasks.prepare.manifest import Feature, FeatureStatistics


class ClassShare(Record):
    """How much of a source one class is."""

    name: str
    num_examples: int
    fraction: float
    """Of the good examples."""
    splits: dict[str, int]
    """Its examples in each split."""


class ShownExample(Record):
    """One of the first examples."""

    key: str
    label: str
    values: dict[str, str]
    """The features, each shortened to a few words."""


class Inspection(Record):
    """A source as `prepare` would take it."""

    kind: str
    num_files: int
    size_bytes: int
    """Of the files."""
    num_examples: int
    """Good ones."""
    num_bad: int
    bad: tuple[str, ...]
    """The first bad ones, each with its reason."""
    problem: str | None
    """Why `prepare` would refuse the source as the config stands; None: it would not."""
    features: dict[str, Feature]
    statistics: dict[str, FeatureStatistics]
    """Of numbers, categories and, if asked for, the tokens of texts, over all good examples."""
    example_bytes_min: int
    example_bytes_mean: float
    example_bytes_max: int
    classes: tuple[ClassShare, ...]
    splits: dict[str, int]
    """Examples of each split; empty if they cannot be split."""
    first: tuple[ShownExample, ...]
    notes: tuple[str, ...]
    """What was left out or inferred."""
