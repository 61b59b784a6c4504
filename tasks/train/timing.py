"""Timing: what the steps' own clocks say about throughput, the wait for input and the host between calls."""

from collections import deque

import numpy as np

from tasks.train.flops import Work
from tasks.train.step import StepOutcomes

WARMUP_STEPS = 2  # the first steps of a process allocate memory and fill the feed's buffers
PERCENTILE_STEPS = 10_000  # the latest steps, of which the percentiles are taken


class Timing:
    """Adds up the timestamps that the in-graph loop took; its size does not grow with the training."""

    def __init__(self, ready_wait_seconds: float, work: Work | None = None) -> None:
        """`ready_wait_seconds`: what a wait reads when there is none; it is taken off every wait. `work`: of a step."""
        self._ready_wait_seconds, self._work = ready_wait_seconds, work or Work()
        self._calls = np.zeros(2)  # seconds of calls, and of them those in which a step ran
        self._warm = False
        self._totals = np.zeros(3)  # examples, seconds, seconds of waiting
        self._recent: deque[float] = deque(maxlen=PERCENTILE_STEPS)
        self._recent_waits: deque[float] = deque(maxlen=PERCENTILE_STEPS)

    def add(self, outcomes: StepOutcomes, call_seconds: float | None = None) -> None:
        """Adds the steps of one call, which took so long for the host if that is known.

        A step that was not timed counts as those beside it, and in the percentiles only if there is no better one.
        """
        waits = np.maximum(outcomes.wait_seconds.numpy() - self._ready_wait_seconds, 0)
        elapsed, timed = outcomes.elapsed_seconds.numpy(), np.isfinite(waits)
        known, numbers = np.isfinite(elapsed), np.arange(len(elapsed))
        seconds = np.diff(np.interp(numbers, numbers[known], elapsed[known]), prepend=0)
        steps = np.stack([outcomes.num_valid.numpy(), seconds, np.where(timed, waits, waits[timed].mean())])
        if self._recent and call_seconds is not None:  # the first call compiles
            self._calls += call_seconds, min(call_seconds, elapsed[-1])
        if not self._warm and len(self._recent) + steps.shape[1] > WARMUP_STEPS:
            # From now on there are better ones, so the first steps count no more.
            first = WARMUP_STEPS - len(self._recent)
            steps, timed = steps[:, first:], timed[first:]
            self._warm, self._totals = True, np.zeros(3)
            self._recent.clear()
            self._recent_waits.clear()
        self._totals += steps.sum(axis=1)
        shown = timed if timed.any() else ~timed
        self._recent.extend(steps[1, shown])
        self._recent_waits.extend(steps[2, shown])

    @property
    def has_begun(self) -> bool:
        """Whether there was a step, so that all is compiled."""
        return bool(self._recent)

    def steps_in(self, seconds: float) -> int:
        """Returns how many steps a call may take to last about so long: one until their time is known."""
        return max(1, int(seconds / np.median(self._recent))) if self._recent else 1

    def figures(self) -> dict[str, float]:
        """Returns what TrainResult says of throughput, by its names; nothing before the first step.

        Left out is what is not known: the host's share before the second call, operations that cannot be counted, and
        mfu where the devices' peak is unknown.
        """
        if not self._recent:
            return {}
        examples, seconds, waits = self._totals
        p50, p95 = np.percentile(self._recent, [50, 95])
        wait_p50, wait_p95 = np.percentile(self._recent_waits, [50, 95])
        rate, work = float(examples / seconds), self._work
        figures = {
            "examples_per_second": rate,
            "examples_per_second_per_replica": rate / work.num_replicas,
            "step_seconds_p50": float(p50),
            "step_seconds_p95": float(p95),
            "input_wait_fraction": float(waits / seconds),
            "input_wait_seconds_p50": float(wait_p50),
            "input_wait_seconds_p95": float(wait_p95),
        }
        if self._calls[0]:
            figures["host_fraction"] = float(1 - self._calls[1] / self._calls[0])
        if work.flops_per_example is not None and work.flops_per_step is not None:
            done = rate * work.flops_per_example
            figures |= {"model_flops_per_step": work.flops_per_step, "model_flops_per_second": done}
            if work.peak_flops is not None:
                figures["mfu"] = done / work.peak_flops
        return figures
