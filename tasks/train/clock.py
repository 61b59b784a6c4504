"""The clock of the in-graph loop, and what it reads when nobody has to wait."""

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tasks.feed.feed import Feed
from tasks.train.batches import batches_of, next_batch

CALIBRATION_STEPS = 64

Clock = Callable[[], tf.Tensor]


def in_graph_clock(*, deterministic: bool) -> Clock:
    """Returns a function for use in a graph: [] float64, seconds since some fixed moment."""
    # TensorFlow refuses its own clock while only deterministic kernels are allowed; the host's costs 30 microseconds.
    return _host_clock if deterministic else tf.timestamp


def timed_next(
    strategy: tf.distribute.Strategy, iterator: tf.data.Iterator, clock: Clock, after: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the next batch, asked for once `after` is there, and the time at which every replica had it."""
    with tf.control_dependencies([after]):
        batch = next_batch(strategy, iterator)
    parts = [part for value in batch.values() for part in strategy.experimental_local_results(value)]
    with tf.control_dependencies(parts):
        return batch, clock()


def ready_wait_seconds(strategy: tf.distribute.Strategy, feed: Feed, clock: Clock) -> float:
    """Returns what a wait for a batch reads, in seconds, when the batch is there already: the loop's own cost."""
    ready = feed.training(0).take(strategy.num_replicas_in_sync).cache().repeat()
    iterator = batches_of(strategy, ready)

    @tf.function(autograph=False)
    def waits(num_steps: tf.Tensor) -> tf.Tensor:
        def wait(number: tf.Tensor, seconds: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            asked = clock()
            _, begun = timed_next(strategy, iterator, clock, asked)
            return number + 1, seconds.write(number, begun - asked)

        start = (tf.constant(0), tf.TensorArray(tf.float64, size=num_steps, element_shape=[]))
        _, seconds = tf.while_loop(lambda number, _: number < num_steps, wait, start, parallel_iterations=1)
        return seconds.stack()

    return float(np.median(waits(tf.constant(CALIBRATION_STEPS))))


def _host_clock() -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(time.perf_counter, [], tf.float64), [])
