"""The learning rate: scaled with the global batch, then a pure function of the step."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import keras

from tasks.duration import Duration
from tasks.errors import ConfigError
from tasks.optimization import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    OptimizerConfig,
    PolynomialSchedule,
    StepSchedule,
)

SCALES = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}  # exponent of the global batch over the one of reference


def learning_rate(
    config: OptimizerConfig, *, total_steps: int, global_batch_size: int, steps: Callable[[Duration], int]
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate, or how it is computed from the number of steps done; `steps` resolves a duration.

    Raises ConfigError if the warm-up is not shorter than the training, or if boundaries are out of order.
    """
    schedule, where = config.schedule, "train.optimizer.schedule"
    peak = (
        config.learning_rate * (global_batch_size / config.reference_batch_size) ** SCALES[config.scale_learning_rate]
    )
    warmup = 0 if schedule.warmup is None else steps(schedule.warmup)
    if warmup >= total_steps:
        raise ConfigError(
            f"{where}.warmup={schedule.warmup}: is {warmup} steps, and train.total only {total_steps}; make it shorter "
            "than the training"
        )
    after: float | keras.optimizers.schedules.LearningRateSchedule
    match schedule:
        case ConstantSchedule():
            after = peak
        case CosineSchedule():
            after = keras.optimizers.schedules.CosineDecay(_number(peak), total_steps - warmup)
        case PolynomialSchedule(power=power, end_factor=end):
            after = keras.optimizers.schedules.PolynomialDecay(
                _number(peak), total_steps - warmup, _number(peak * end), _number(power)
            )
        case ExponentialSchedule(every=every, factor=factor, staircase=staircase):
            after = keras.optimizers.schedules.ExponentialDecay(_number(peak), steps(every), _number(factor), staircase)
        case StepSchedule(boundaries=boundaries, factors=factors):
            starts = [steps(boundary) for boundary in boundaries]
            if any(later <= earlier for earlier, later in pairwise([warmup, *starts])):
                raise ConfigError(
                    f"{where}.boundaries: are after {', '.join(map(str, starts))} steps, and the warm-up is {warmup}; "
                    "each must come later than the one before, and the first after the warm-up"
                )
            # Keras's boundary is the last step of the old value, ours the number of steps done before the new one.
            after = keras.optimizers.schedules.PiecewiseConstantDecay(
                [start - warmup - 1 for start in starts], [_number(peak * factor) for factor in (1, *factors)]
            )
    return Warmup(peak, warmup, after) if warmup else after


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from zero to `peak` in `warmup` steps, then does what `after` does from its start."""

    def __init__(
        self, peak: float, warmup: int, after: float | keras.optimizers.schedules.LearningRateSchedule
    ) -> None:
        self._peak, self._warmup, self._after = peak, warmup, after

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate, [] of the float type, after `step` steps, [] int."""
        step = keras.ops.convert_to_tensor(step)
        rise = _number(self._peak) * keras.ops.cast(step, keras.config.floatx()) / self._warmup
        since = keras.ops.maximum(step - self._warmup, 0)
        after = self._after(since) if callable(self._after) else _number(self._after)
        return keras.ops.where(step < self._warmup, rise, after)


def _number(value: float) -> Any:
    """Returns a [] tensor of the float type; Keras makes float32 of a plain number in every precision."""
    return keras.ops.convert_to_tensor(value, keras.config.floatx())
