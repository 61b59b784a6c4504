"""Accelerator: a stand-in that takes batches at a given rate; and the wait for a feed's first batch."""

import time
from pathlib import Path

from tasks.bench.case import Case
from tasks.bench.pipelines import feed_of

WARMUP_STEPS = 10  # in which the feed fills its buffers


def stall_share(file: Path, *, examples_per_second: float, seconds: float) -> float:
    """Returns the share of the time (0..1) in which an accelerator that takes so many examples a second had none.

    It sleeps for as long as a step would last, so that every core is left to the feed, and is measured for about
    `seconds`.
    """
    case = Case.read(file)
    batches = iter(feed_of(case, cache="none").training(0))
    step_seconds = case.feed.global_batch_size / examples_per_second
    waited, begun = 0.0, time.perf_counter()
    for step in range(WARMUP_STEPS + max(1, round(seconds / step_seconds))):
        if step == WARMUP_STEPS:
            waited, begun = 0.0, time.perf_counter()
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
        time.sleep(step_seconds)
    return waited / (time.perf_counter() - begun)


def first_batch_seconds(file: Path, *, epoch_share: float) -> float:
    """Returns the seconds from a new feed to its first batch, where this share (0..1) of the first epoch is done."""
    case = Case.read(file)
    begun = time.perf_counter()
    feed = feed_of(case, cache="none")
    next(iter(feed.training(int(feed.steps_per_epoch * epoch_share))))
    return time.perf_counter() - begun
