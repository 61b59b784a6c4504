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
    num_valid: tf.Tensor | int = 1
    """[], examples in the global batch."""
    num_parts: int = 1
    """Into how many a global batch is cut, over replicas and microbatches: `model.losses` is averaged over them."""
    calls: dict[int, int] = field(default_factory=dict)
    """How often each random layer was called in this step, so that a shared layer never draws a mask twice."""

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
