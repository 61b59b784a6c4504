"""ParityReport: where and how far trainings part that differ in nothing but the number of replicas."""

from tasks.bench.report import Host
from tasks.files import Record


class Parting(Record):
    """One training, held step by step against the one of the same side and precision on fewest replicas."""

    side: str
    """ours or fit."""
    precision: str
    num_replicas: int
    tolerance: float
    """Largest absolute difference that counts as rounding."""
    first_step: int | None = None
    """The first step, counted from 1, after which a variable differs by more; None if none does."""
    first_variable: str = ""
    """The one that differs most after it."""
    difference: float = 0.0
    """Largest absolute difference of all variables after the last step; infinite where a value is not finite."""
    variable: str = ""
    """The one that has it; empty if all are equal to the bit."""
    failed: str = ""
    """Why this training could not be held against the other; empty if it could."""


class ParityReport(Record):
    """A user's own config on several numbers of replicas."""

    num_steps: int
    rows: tuple[Parting, ...]
    host: Host

    def verdict(self) -> str:
        """Returns in one sentence whether ours is the same on every number of replicas, as float64 tells."""
        ours = [row for row in self.rows if (row.side, row.precision) == ("ours", "float64")]
        apart = [row for row in ours if row.failed or row.first_step is not None]
        if not apart:
            return f"float64: the same after each of {self.num_steps} steps, but for rounding"
        first = min(apart, key=lambda row: row.first_step or 0)
        if first.failed:
            return f"float64: cannot be said, because {first.num_replicas} replica(s) failed: {first.failed}"
        return (
            f"float64: not the same: on {first.num_replicas} replicas {first.first_variable} is another after step "
            f"{first.first_step}; look for a layer or loss that computes over the rows of one replica"
        )
