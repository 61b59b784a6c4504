"""XLA: forward and backward pass of a replica as one compiled program; sums over replicas and the update stay out."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tasks.combinations import refuse_xla
from tasks.config import TrainConfig
from tasks.errors import ConfigError
from tasks.models.layers import takes_batch_statistics

_MAX_POOLING = (keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D)
Contribution = Callable[[dict[str, tf.Tensor], tf.Tensor, tf.Tensor, int], list[tf.Tensor]]


def compiled(contribution: Contribution) -> Contribution:
    """Returns what `contribution`(batch, step, scale, num_parts) returns, compiled; each replica compiles its own."""
    program: Any = tf.function(contribution, autograph=False, jit_compile=True)

    def contribute(batch: dict[str, tf.Tensor], step: tf.Tensor, scale: tf.Tensor, num_parts: int) -> list[tf.Tensor]:
        # XLA has no text; what is left of it, such as names, is not for the model.
        numbers = {name: column for name, column in batch.items() if column.dtype != tf.string}
        return list(program(numbers, step, scale, num_parts))

    return contribute


def check_xla(model: keras.Model, config: TrainConfig, *, num_replicas: int) -> None:
    """Raises ConfigError if XLA is asked for, and the model sums over several replicas in its forward pass or has
    layers without a deterministic gradient in XLA where one is asked for."""
    if not config.jit_compile:
        return
    if num_replicas > 1 and takes_batch_statistics(model):
        refuse_xla(f"the model normalises over the batch of {num_replicas} replicas")
    pooling = [layer.name for layer in model._flatten_layers() if isinstance(layer, _MAX_POOLING)]
    if config.deterministic and pooling:
        raise ConfigError(
            f"train.jit_compile=true: the gradient of the largest of a window ({', '.join(pooling[:4])}) is not "
            "deterministic in XLA; take train.deterministic=false, average pooling or train.jit_compile=false"
        )
