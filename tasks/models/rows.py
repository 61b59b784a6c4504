"""ReplicaRows: what a layer may know about the rows that its replica sees in this step."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import tensorflow as tf


@dataclass
class Replay:
    """What a part of a model found when it first ran in this step, so that it computes the same when it runs again."""

    calls: dict[int, int]
    """`ReplicaRows.calls`."""
    statistics: list[tuple[tf.Tensor, tf.Tensor]] = field(default_factory=list)
    """The moving mean and variance of each of its layers that normalise, in the order in which they are called."""
    runs: int = 0
    """How often it was begun."""
    place: int = 0
    """Of the next of `statistics`, when it runs again."""


@dataclass
class ReplicaRows:
    """The rows of one global batch that one replica works on."""

    seed: int
    """train.seed."""
    step: tf.Tensor
    """[] int64, the optimizer step."""
    first_row: tf.Tensor
    """[] int64, place in the global batch of the replica's first row."""
    mask: tf.Tensor
    """[b] bool, False for padding."""
    num_replicas: int
    num_valid: tf.Tensor | int = 1
    """[], examples in the global batch."""
    num_parts: int = 1
    """Into how many a global batch is cut, over replicas and microbatches: `model.losses` is averaged over them."""
    calls: dict[int, int] = field(default_factory=dict)
    """How often each random layer was called in this step, so that a shared layer never draws a mask twice."""

    replay: Replay | None = None
    """Of the part of the model that is at work, if its activations are not kept (tasks/models/recompute.py)."""

    def before(self, statistics: tuple[tf.Tensor, tf.Tensor]) -> tuple[tuple[tf.Tensor, tf.Tensor], bool]:
        """Returns a layer's moving `statistics` as they were when it first ran in this step, and if that is now."""
        replay = self.replay
        if replay is None:
            return statistics, True
        if replay.runs == 1:
            replay.statistics.append(statistics)
            return statistics, True
        replay.place += 1
        return replay.statistics[replay.place - 1], False

    def per_example(self, length: int) -> int:
        """Returns how many of `length` rows each example has, where examples were cut up: 0 if they are no examples'.

        A layer may be given [b * t, c] for [b, t, c], the rows of an example side by side, or a table [t, c] that is
        the same for all.
        """
        num_examples = self.mask.shape[0]
        return 0 if length % num_examples else length // num_examples


_current = threading.local()  # MirroredStrategy traces each replica in a thread of its own


@contextmanager
def replica_rows(rows: ReplicaRows) -> Iterator[None]:
    """Makes `rows` known to the layers called in the block, in this thread."""
    before = current_rows()
    _current.rows = rows
    try:
        yield
    finally:
        _current.rows = before


def current_rows() -> ReplicaRows | None:
    """Returns the rows of the training step that is being traced, None outside of one."""
    return getattr(_current, "rows", None)
