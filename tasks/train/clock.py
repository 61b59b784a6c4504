"""The clock of the in-graph loop, which steps it times, and what it reads when nobody has to wait."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tasks.feed.feed import Feed
from tasks.train.batches import batches_of, next_batch

CALIBRATION_STEPS = 64
QUICK_SECONDS = 2e-3  # a reading of the host's clock is over 1 % of a step that takes less

Read = Callable[[], tf.Tensor]


class Clock(NamedTuple):
    """A clock for use in a graph, and how often it is worth a look."""

    read: Read
    """[] float64, seconds since some fixed moment."""
    every: int
    """Of steps below QUICK_SECONDS one in so many is timed; of others each is."""

    def is_due(self, number: tf.Tensor, quick: tf.Tensor) -> tf.Tensor:
        """Returns whether the step of this number in its call is timed: [] bool."""
        return tf.logical_or(tf.equal(number % self.every, 0), tf.logical_not(quick))

    def when(self, due: tf.Tensor) -> Read:
        """Returns a function that reads the clock if it is due, else gives NaN."""
        if self.every == 1:
            return self.read
        return lambda: tf.cond(due, self.read, lambda: tf.constant(np.nan, tf.float64))


def in_graph_clock(*, deterministic: bool) -> Clock:
    """Returns TensorFlow's clock, or the host's where TensorFlow refuses its own: if kernels must be deterministic.

    A reading of the host's takes the loop 30 microseconds and more.
    """
    return Clock(_read_host, every=8) if deterministic else Clock(tf.timestamp, every=1)


def timed_next(
    strategy: tf.distribute.Strategy, iterator: tf.data.Iterator, read: Read, after: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the next batch, asked for once `after` is there, and the time at which every replica had it."""
    with tf.control_dependencies([after]):
        batch = next_batch(strategy, iterator)
    parts = [part for value in batch.values() for part in strategy.experimental_local_results(value)]
    with tf.control_dependencies(parts):
        return batch, read()


def ready_wait_seconds(strategy: tf.distribute.Strategy, feed: Feed, clock: Clock) -> float:
    """Returns what a wait for a batch reads, in seconds, when the batch is there already: the loop's own cost."""
    ready = feed.training(0).take(strategy.num_replicas_in_sync).cache().repeat()
    iterator = batches_of(strategy, ready)

    @tf.function(autograph=False)
    def waits(num_steps: tf.Tensor) -> tf.Tensor:
        def wait(number: tf.Tensor, seconds: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            asked = clock.read()
            _, begun = timed_next(strategy, iterator, clock.read, asked)
            return number + 1, seconds.write(number, begun - asked)

        start = (tf.constant(0), tf.TensorArray(tf.float64, size=num_steps, element_shape=[]))
        _, seconds = tf.while_loop(lambda number, _: number < num_steps, wait, start, parallel_iterations=1)
        return seconds.stack()

    return float(np.median(waits(tf.constant(CALIBRATION_STEPS))))


def _read_host() -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])
