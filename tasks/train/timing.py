"""Timing: what the steps' own clocks say about throughput and the wait for input."""

import numpy as np

from tasks.train.step import StepOutcomes

WARMUP_STEPS = 2  # the first steps of a process allocate memory and fill the feed's buffers


class Timing:
    """Collects the timestamps that the in-graph loop took."""

    def __init__(self, ready_wait_seconds: float) -> None:
        """`ready_wait_seconds`: what a wait reads when there is none; it is taken off every wait."""
        self._ready_wait_seconds = ready_wait_seconds
        self._seconds: list[np.ndarray] = []
        self._waits: list[np.ndarray] = []
        self._examples: list[np.ndarray] = []

    def add(self, outcomes: StepOutcomes) -> None:
        """Adds the steps of one call."""
        self._seconds.append(outcomes.seconds.numpy())
        self._waits.append(np.maximum(outcomes.wait_seconds.numpy() - self._ready_wait_seconds, 0))
        self._examples.append(outcomes.num_valid.numpy())

    def figures(self) -> dict[str, float]:
        """Returns examples_per_second, step_seconds_p50, step_seconds_p95, input_wait_fraction (0..1) of all steps."""
        seconds, waits, examples = (np.concatenate(x) for x in (self._seconds, self._waits, self._examples))
        if len(seconds) > WARMUP_STEPS:
            seconds, waits, examples = seconds[WARMUP_STEPS:], waits[WARMUP_STEPS:], examples[WARMUP_STEPS:]
        p50, p95 = np.percentile(seconds, [50, 95])
        return {
            "examples_per_second": float(examples.sum() / seconds.sum()),
            "step_seconds_p50": float(p50),
            "step_seconds_p95": float(p95),
            "input_wait_fraction": float(waits.sum() / seconds.sum()),
        }
