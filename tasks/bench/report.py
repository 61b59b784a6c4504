"""BenchReport: what a comparison measured."""

from tasks.files import Record


class Row(Record):
    """One figure of one side over all rounds."""

    side: str
    metric: str
    median: float
    min: float
    max: float
    unit: str


class Host(Record):
    """Where it was measured; a loaded host is worth a second run."""

    cores: int
    load: float
    """Load average of the last minute when the comparison began."""
    versions: dict[str, str]


class BenchReport(Record):
    """All sides of a comparison."""

    rows: tuple[Row, ...]
    ratios: dict[str, float]
    """A rival's CPU-seconds over ours, the median of the rounds: larger is better for us.

    Of a name that ends in `examples_per_second`, our rate over the rival's.
    """
    host: Host


class FeedReport(BenchReport):
    """All sides of the feed's comparison, and what it comes to."""

    advice: tuple[str, ...]
    """A sentence for each data set: how many GPUs this host can feed, and what to change first."""
