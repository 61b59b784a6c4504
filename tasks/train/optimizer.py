"""The optimizer: Keras's own, with a learning-rate schedule, fed with gradients that are already summed."""

import keras

from tasks.errors import ConfigError
from tasks.optimization import CosineSchedule, OptimizerConfig

OPTIMIZERS = {
    "sgd": keras.optimizers.SGD,
    "adam": keras.optimizers.Adam,
    "adamw": keras.optimizers.AdamW,
    "lion": keras.optimizers.Lion,
}


def build_optimizer(config: OptimizerConfig, *, total_steps: int, warmup_steps: int) -> keras.optimizers.Optimizer:
    """Returns the optimizer, for use with `strategy.run`; raises ConfigError if Keras refuses an argument.

    It must be given gradients that are summed over the replicas already: its own sum is switched off, because a second
    one doubles the traffic and multiplies the gradients by the number of replicas.
    """
    try:
        rate = _learning_rate(config, total_steps=total_steps, warmup_steps=warmup_steps)
        optimizer = OPTIMIZERS[config.name](learning_rate=rate, **config.args)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"train.optimizer.args={config.args}: Keras's {config.name} refuses them: {error}") from error
    assert hasattr(optimizer, "_all_reduce_sum_gradients"), "a private name of Keras that a test watches"
    optimizer._all_reduce_sum_gradients = list  # (gradient, variable) pairs in, the same out
    return optimizer


def _learning_rate(config: OptimizerConfig, *, total_steps: int, warmup_steps: int) -> object:
    if not isinstance(config.schedule, CosineSchedule):
        return config.learning_rate
    if warmup_steps >= total_steps:
        raise ConfigError(
            f"train.optimizer.schedule.warmup={config.schedule.warmup}: is {warmup_steps} steps, and train.total only "
            f"{total_steps}; make it shorter than the training"
        )
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup_steps else config.learning_rate,
        decay_steps=total_steps - warmup_steps,
        warmup_target=config.learning_rate if warmup_steps else None,
        warmup_steps=warmup_steps,
    )
