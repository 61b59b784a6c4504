"""The optimizer: Keras's own, with a learning-rate schedule, fed with gradients that are already summed."""

import re
from collections.abc import Sequence

import keras

from tasks.errors import ConfigError
from tasks.models.patches import leave_gradients_as_they_are
from tasks.optimization import OPTIMIZERS, OptimizerConfig

WEIGHTS_SHOWN = 12


def build_optimizer(
    config: OptimizerConfig,
    variables: Sequence[keras.Variable],
    rate: float | keras.optimizers.schedules.LearningRateSchedule,
) -> keras.optimizers.Optimizer:
    """Returns the optimizer of `variables`, for use with `strategy.run`; call it in the strategy's scope.

    `rate` is what `schedule.learning_rate` returned. Raises ConfigError if Keras refuses an argument, or a pattern of
    `exclude_from_weight_decay` is found in the path of no variable.

    It must be given gradients that are summed over the replicas already: its own sum is switched off, because a second
    one doubles the traffic and multiplies the gradients by the number of replicas.
    """
    try:
        optimizer = getattr(keras.optimizers, OPTIMIZERS[config.name][0])(learning_rate=rate, **config.args)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"train.optimizer.args={config.args}: Keras's {config.name} refuses them: {error}") from error
    leave_gradients_as_they_are(optimizer)
    # By variable and not by name: Keras's own names are without the layer, and end in a number on each replica.
    optimizer.exclude_from_weight_decay(var_list=_excluded(config.exclude_from_weight_decay, variables))
    optimizer.build(variables)
    return optimizer


def _excluded(patterns: Sequence[str], variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    found: list[keras.Variable] = []
    for pattern in patterns:
        fitting = [variable for variable in variables if re.search(pattern, variable.path)]
        if not fitting:
            paths = [variable.path for variable in variables]
            shown = ", ".join(paths[:WEIGHTS_SHOWN]) + (", ..." if len(paths) > WEIGHTS_SHOWN else "")
            raise ConfigError(
                f"train.optimizer.exclude_from_weight_decay: {pattern!r} is found in the path of no weight; the "
                f"model's weights are {shown}"
            )
        found += fitting
    return found
