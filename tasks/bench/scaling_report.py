"""ScalingReport: what more replicas gain, and what it costs them to sum their gradients."""

from typing import Literal

from tasks.bench.report import Host
from tasks.files import Record


class Point(Record):
    """A training on a number of replicas."""

    mode: Literal["weak", "strong"]
    """weak: each replica takes as many examples as one alone does; strong: all together do."""
    num_replicas: int
    global_batch_size: int
    examples_per_second: float
    """The median of the windows; the least and the most follow."""
    min: float
    max: float
    speedup: float
    """Over one replica of the same mode."""
    efficiency: float
    """The speedup over the number of replicas (0..1, or a little more)."""
    input_wait_fraction: float
    """Share of the steps' time that was spent waiting for the feed: it is no matter of the replicas."""


class Reduction(Record):
    """One way of summing tensors of the sizes of the model's gradients over the replicas."""

    all_reduce: str
    """As in distribute.all_reduce."""
    num_replicas: int
    num_bytes: int = 0
    seconds: float = 0.0
    """Of one sum: the least of the windows."""
    is_right: bool = False
    """Whether every number of the sum was exact, on whole numbers."""
    failed: str = ""
    """Why it could not be done here; empty if it could."""


class ScalingReport(Record):
    """1..N replicas of one host."""

    name: str
    """Of the config."""
    devices: tuple[str, ...]
    """GPUs, or none: then every replica is a part of the CPU."""
    points: tuple[Point, ...]
    reductions: tuple[Reduction, ...]
    host: Host

    def best(self) -> dict[str, float]:
        """Returns the largest rate, with its number of replicas and efficiency, and the fastest sum that is right."""
        point = max(self.points, key=lambda point: point.examples_per_second)
        figures = {
            "best_examples_per_second": point.examples_per_second,
            "best_num_replicas": float(point.num_replicas),
            "best_efficiency": point.efficiency,
        }
        seconds = [reduction.seconds for reduction in self.reductions if reduction.is_right]
        return figures | ({"best_all_reduce_seconds": min(seconds)} if seconds else {})
