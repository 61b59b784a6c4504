"""Splits: by which rule each example of a source goes to train, validation or test."""

import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from tasks.section import Section, kind_if_none

SPLITS = ("train", "validation", "test")


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def microseconds_of(moment: datetime.datetime) -> int:
    """Returns the microseconds since 1970 in UTC; a time without a zone is taken as UTC."""
    since = moment.replace(tzinfo=moment.tzinfo or datetime.UTC) - _EPOCH
    return since // datetime.timedelta(microseconds=1)


def is_whole_number(bound: str) -> bool:
    """Returns whether a boundary of time is a number, to be compared with numbers, and not a date."""
    return re.fullmatch(r"[+-]?\d+", bound) is not None


class Shares(Section):
    """The share of the examples in each split; the three add up to 1."""

    train: float = Field(0.8, gt=0, lt=1)
    """Share of examples to learn from."""
    validation: float = Field(0.1, gt=0, lt=1)
    """Share of examples that choose the best checkpoint."""
    test: float = Field(0.1, gt=0, lt=1)
    """Share of examples that are looked at once, at the end."""

    @model_validator(mode="after")
    def _add_up(self) -> "Shares":
        total = sum(self.shares)
        if abs(total - 1) > 1e-9:
            raise ValueError(f"must be shares that add up to 1, not {total:g}")
        return self

    @property
    def shares(self) -> tuple[float, float, float]:
        """The shares in the order of SPLITS."""
        return self.train, self.validation, self.test


class FractionSplits(Shares):
    """By a seeded hash of the example's key, stratified: each split has its share of every class."""

    kind: Literal["fraction"] = "fraction"


class GroupSplits(Shares):
    """By a column whose equal values stay together (a patient, a user); the shares are met as nearly as can be."""

    kind: Literal["group"] = "group"
    column: str
    """Column that names the group; of a folder of files `path`, the file's path below the source."""
    pattern: str | None = None
    r"""Regular expression whose first group is taken out of the column's text, such as 'patient(\d+)'; default: all."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            groups = 1 if pattern is None else re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"must be a regular expression ({error})") from None
        if groups < 1:
            raise ValueError("must be a regular expression with a (group) in it")
        return pattern


def _as_text(value: Any) -> Any:
    """Returns what YAML takes for a date or a number as the text that it was."""
    if isinstance(value, datetime.date):  # a datetime too
        return value.isoformat()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Moment = Annotated[str, BeforeValidator(_as_text)]
_UNITS = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}  # seconds
Window = Annotated[str, BeforeValidator(_as_text), Field(pattern=rf"^[1-9][0-9]*( ({'|'.join(_UNITS)})s?)?$")]


def window_length(window: str) -> int:
    """Returns how long a window is in what the times of a source are counted in: microseconds, or whole numbers."""
    number, _, unit = window.partition(" ")
    return int(number) * (_UNITS[unit.removesuffix("s")] * 1_000_000 if unit else 1)


class TimeSplits(Shares):
    """By a column of times or numbers: the oldest to train, the newest to test; equal times stay together."""

    kind: Literal["time"] = "time"
    column: str
    """Column of the time (or of a number that grows with it)."""
    validation_from: Moment | None = None
    """First time of the validation split (2026-01-31 or 2026-01-31T12:00:00, UTC), in place of the shares."""
    test_from: Moment | None = None
    """First time of the test split; given together with validation_from."""
    validation_window: Window | None = None
    """Length of the validation split, just before the test split, in place of the shares ('7 days'; of numbers 7)."""
    test_window: Window | None = None
    """Length of the test split, which ends with the newest example and so moves on; given with validation_window."""

    @model_validator(mode="after")
    def _both(self) -> "TimeSplits":
        for validation, test in (("validation_from", "test_from"), ("validation_window", "test_window")):
            if (getattr(self, validation) is None) != (getattr(self, test) is None):
                raise ValueError(f"must have both {validation} and {test}, or neither")
        if self.is_fixed and self.test_window is not None:
            raise ValueError("must have first times (validation_from, test_from) or windows, not both")
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether an example's split follows from its own time, whatever others there are."""
        return self.test_from is not None


class NamedSplits(Section):
    """The part of a source that each split takes, by name; a number is a share of what train would have."""

    train: str = "train"
    """What goes to train."""
    validation: str | Annotated[float, Field(gt=0, lt=1)] = "validation"
    """What goes to validation, or the share of train that does (0.1), stratified and by a seeded hash of the key."""
    test: str | Annotated[float, Field(gt=0, lt=1)] = "test"
    """What goes to test, or the share of train that does."""

    @model_validator(mode="after")
    def _leave_some(self) -> "NamedSplits":
        if sum(share for share in (self.validation, self.test) if isinstance(share, float)) >= 1:
            raise ValueError("must leave a share of train, so the shares of the others must add up to less than 1")
        return self

    def names(self) -> dict[str, str]:
        """Returns what each split takes by name; a split that is a share of train is not in it."""
        return {split: name for split in SPLITS if isinstance(name := getattr(self, split), str)}

    def shares_of_train(self) -> tuple[float, float]:
        """Returns the shares of train that go to validation and test; 0 for one that is taken by name."""
        validation, test = (share if isinstance(share, float) else 0.0 for share in (self.validation, self.test))
        return validation, test


class OfficialSplits(NamedSplits):
    """As the source itself has them, by their names there."""

    kind: Literal["official"] = "official"


class FileSplits(NamedSplits):
    """By the file that an example is in: patterns of paths below the source, such as 'train/*.parquet'."""

    kind: Literal["file"] = "file"


Splits = Annotated[
    FractionSplits | OfficialSplits | GroupSplits | TimeSplits | FileSplits,
    Field(discriminator="kind"),
    kind_if_none("fraction"),
]
