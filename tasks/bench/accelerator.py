"""Accelerator: a stand-in that takes batches at a given rate; and the wait for a feed's first batch."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.bench.case import Case
from tasks.bench.pipelines import feed_of
from tasks.feed.plan import PREFETCH_BATCHES

WARMUP_STEPS = 10  # in which the feed fills its buffers


def stall_share(file: Path, *, examples_per_second: float, seconds: float) -> float:
    """Returns the share of the time (0..1) in which an accelerator that takes so many examples a second had none.

    It sleeps for as long as a step would last, so that every core is left to the feed, and is measured for about
    `seconds`. As in a training, what it takes to fetch a batch that is ready is no wait.
    """
    case = Case.read(file)
    step_seconds = case.feed.global_batch_size / examples_per_second
    num_steps = max(1, round(seconds / step_seconds))
    batches = feed_of(case, cache="none").training(0)
    ready = tf.data.Dataset.from_tensors(next(iter(batches))).repeat().prefetch(PREFETCH_BATCHES)
    ready_wait = np.median(_wait_seconds(iter(ready), WARMUP_STEPS, step_seconds))
    waits = _wait_seconds(iter(batches), num_steps, step_seconds)
    return float(np.maximum(waits - ready_wait, 0).sum() / (waits.sum() + num_steps * step_seconds))


def first_batch_seconds(file: Path, *, epoch_share: float) -> float:
    """Returns the seconds from a new feed to its first batch, where this share (0..1) of the first epoch is done."""
    case = Case.read(file)
    begun = time.perf_counter()
    feed = feed_of(case, cache="none")
    next(iter(feed.training(int(feed.steps_per_epoch * epoch_share))))
    return time.perf_counter() - begun


def _wait_seconds(batches: Iterator[Any], num_steps: int, step_seconds: float) -> np.ndarray:
    """Returns [num_steps] float64, how long it took to get the batch of each step after the first few."""
    waits = []
    for _ in range(WARMUP_STEPS + num_steps):
        asked = time.perf_counter()
        next(batches)
        waits.append(time.perf_counter() - asked)
        time.sleep(step_seconds)
    return np.array(waits[WARMUP_STEPS:])
