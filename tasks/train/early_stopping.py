"""Early stopping: when the figures of the validations say that a training is at its end."""

import math
from typing import Any

from tasks.optimization import EarlyStopping
from tasks.target import is_lower_better
from tasks.train.checkpoint import Position


def is_better(metric: str, value: float, than: float | None, *, by: float = 0.0) -> bool:
    """Returns whether a metric improved by more than `by`; anything is better than None.

    Losses and errors have to fall, all else to rise. A value that is not finite is never better.
    """
    sign = -1 if is_lower_better(metric) else 1
    return math.isfinite(value) and (than is None or sign * (value - than) > by)


def judge(config: EarlyStopping, position: Position, value: float, *, steps_per_epoch: int) -> dict[str, Any]:
    """Returns the fields of `position` that a validation with this value of `config.metric` changes.

    They are the value to be bettered, or why the training stops here; none if it goes on waiting.
    """
    if is_better(config.metric, value, position.awaited_value, by=config.min_delta):
        return {"awaited_value": value, "awaited_step": position.step}
    if position.step - position.awaited_step < config.patience * steps_per_epoch:
        return {}
    since = "there was no finite value"
    if position.awaited_value is not None:
        epoch = position.awaited_step / steps_per_epoch
        since = f"{position.awaited_value:.6g} of epoch {epoch:g} was not bettered by more than {config.min_delta:g}"
    return {
        "stopped_early": f"{config.metric}: {since} in {config.patience} epoch(s), up to epoch "
        f"{position.step / steps_per_epoch:g}"
    }
