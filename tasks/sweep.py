"""Sweep: the fields of sweep, which say what a search for better settings tries."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from tasks.section import Section

Choice = bool | int | float | str | None


class Axis(Section):
    """The values that a field may take: from `low` to `high`, or one of `choices`."""

    low: int | float = 0
    """The smallest value; all are whole numbers if both ends are."""
    high: int | float = 0
    """The largest value."""
    log: bool = False
    """Whether values are drawn evenly by their logarithm: for what matters by its order of magnitude."""
    step: Annotated[int | float, Field(gt=0)] | None = None
    """Distance between two values, from `low`; default: 1 of whole numbers, else none."""
    choices: tuple[Choice, ...] = ()
    """The values, in no order."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        is_range = (self.low, self.high, self.log, self.step) != (0, 0, False, None)
        if is_range == bool(self.choices):
            raise ValueError("must have either low and high, or choices")
        if is_range and self.low >= self.high:
            raise ValueError("must have a low below its high")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("must have a low above 0 and no step, since it is drawn by its logarithm")
        if self.is_whole and isinstance(self.step, float):
            raise ValueError("must have a whole step, since its ends are whole numbers")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Choice, ...]:
        """The values that must be valid for all others to be: both ends, or every choice."""
        return self.choices or (self.low, self.high)


class PruningConfig(Section):
    """When a trial is given up before its end: by its best validation figure so far, against that of others then."""

    percentile: float = Field(50, gt=0, lt=100)
    """Percent of the trials, the best of an epoch, among which one must be to go on; 50: the better half."""
    first_trials: int = Field(5, ge=1)
    """Trials that must have come to their end before any is given up."""
    first_epochs: int = Field(1, ge=1)
    """Epochs that each trial is given."""


class SweepConfig(Section):
    """What `millstream sweep` tries; the best by train.best_metric wins."""

    space: dict[Annotated[str, Field(pattern=r"^(feed|model|train)(\.\w+)+$")], Axis] = Field(min_length=1)
    """The fields that are searched, by dotted name such as train.optimizer.learning_rate: those of feed, model and
    train, since trials on other data could not be compared."""
    num_trials: int = Field(20, ge=1)
    """Trainings in all; a sweep that is at its end goes on if it is given more."""
    seed: int = Field(0, ge=0, lt=2**31)
    """Decides what is tried."""
    pruning: PruningConfig | None = PruningConfig()
    """When a trial is given up; null: never."""
