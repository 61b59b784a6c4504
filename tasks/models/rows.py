"""ReplicaRows: what a layer may know about the rows that its replica sees in this step."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import tensorflow as tf


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
    calls: dict[int, int] = field(default_factory=dict)
    """How often each random layer was called in this step, so that a shared layer never draws a mask twice."""


_current = threading.local()  # MirroredStrategy traces each replica in a thread of its own


@contextmanager
def replica_rows(rows: ReplicaRows) -> Iterator[None]:
    """Makes `rows` known to the layers called in the block, in this thread."""
    _current.rows = rows
    try:
        yield
    finally:
        _current.rows = None


def current_rows() -> ReplicaRows | None:
    """Returns the rows of the training step that is being traced, None outside of one."""
    return getattr(_current, "rows", None)
