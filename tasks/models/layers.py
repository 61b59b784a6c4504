"""Layers that compute the same on any number of replicas, where Keras's own do not."""

from typing import Any

import keras
import tensorflow as tf

from tasks.models.draws import kept
from tasks.models.moments import update_moments
from tasks.models.rows import current_rows


@keras.saving.register_keras_serializable(package="millstream")
class StatelessDropout(keras.layers.Layer):
    """Dropout whose mask is a function of (seed, layer, step, row of the global batch, place in the row).

    Each replica draws only its own rows, and they are the rows that one replica would draw. There is no state: a
    resumed run draws the masks that the unbroken run drew.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"StatelessDropout(rate={rate}): must be at least 0 and below 1")
        self.rate = rate
        self.stream = 0  # set when the model is built: tells this layer's masks from the others'

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `inputs` of any shape [b, ...] with a share of `rate` set to 0 and the rest scaled up."""
        if not training or self.rate == 0:
            return inputs
        rows = current_rows()
        assert rows is not None, f"{self.name} was called with training=True outside a replica step"
        keep = kept(rows, self.stream, tf.shape(inputs), rate=self.rate)
        return tf.where(keep, inputs / (1 - self.rate), tf.zeros_like(inputs))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate}


@keras.saving.register_keras_serializable(package="millstream")
class SyncBatchNorm(keras.layers.Layer):
    """Batch normalisation over the last axis, with the statistics of the whole global batch, padding left out.

    One all-reduce a call. While `trainable` is False it normalises by its moving statistics, as Keras's own does.
    """

    def __init__(self, momentum: float = 0.99, epsilon: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", autocast=False, name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", autocast=False, name="beta")
        self.moving_mean = _moving_statistic(shape, "zeros", name="moving_mean")
        self.moving_variance = _moving_statistic(shape, "ones", name="moving_variance")

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `inputs` [b, ..., c] normalised per channel; the moments are of float32 in mixed precision too."""
        inputs = tf.cast(inputs, self.variable_dtype)
        if training and self.trainable:
            mean, variance = update_moments(self, inputs)
        else:
            mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        scale = tf.convert_to_tensor(self.gamma) * tf.math.rsqrt(variance + self.epsilon)
        return tf.cast(inputs * scale + (self.beta - mean * scale), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "epsilon": self.epsilon}


def takes_batch_statistics(model: keras.Model) -> bool:
    """Returns whether a layer of `model` normalises over the batch, so that it matters which examples come together."""
    return any(
        isinstance(layer, SyncBatchNorm | keras.layers.BatchNormalization) and layer.trainable
        for layer in model._flatten_layers()
    )


def _moving_statistic(shape: tuple[int | None, ...], initializer: str, *, name: str) -> keras.Variable:
    """Returns a variable of which each replica keeps a copy of its own: all compute the same, so none has to send."""
    return keras.Variable(
        initializer,
        shape=shape,
        trainable=False,
        autocast=False,
        synchronization="on_read",
        aggregation="only_first_replica",
        name=name,
    )
