"""Profile: some steps of a training as TensorFlow's profiler sees them, for xprof or TensorBoard to show."""

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from tasks.files import atomic_directory
from tasks.train.step import StepOutcomes

Take = Callable[[tf.Tensor], StepOutcomes]
"""Takes a number of steps, [] int32."""


def profile_steps(take: Take, directory: Path | None, *, first: int, num_steps: int) -> StepOutcomes:
    """Returns the outcomes of `num_steps` steps, or of those up to one that is not finite; their profile is written.

    Each is a call of its own, marked with its number, `first` being the next: xprof's overview and trace viewer go by
    that. They are slower than others. `directory` is complete once it is there: `xprof --logdir` shows it. Without one
    the steps are taken in the same way, as those of a worker whose chief writes the profile.
    """
    if directory is None:
        return _one_by_one(take, range(first, first + num_steps))
    with atomic_directory(directory) as incomplete:
        tf.profiler.experimental.start(str(incomplete))
        outcomes = _one_by_one(take, range(first, first + num_steps))
        tf.profiler.experimental.stop()
    return outcomes


def _one_by_one(take: Take, steps: range) -> StepOutcomes:
    outcomes = []
    for step in steps:
        with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
            outcomes.append(take(tf.constant(1, tf.int32)))
            healthy = bool(outcomes[-1].healthy.numpy().all())  # which waits for the devices
        if not healthy:
            break
    return StepOutcomes(*(tf.concat(column, axis=0) for column in zip(*outcomes, strict=True)))
