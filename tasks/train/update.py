"""The update: what is done once in a step with the gradients that are summed over all replicas."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tasks.optimization import Clip
from tasks.train.ema import Ema
from tasks.train.loss_scale import SMALLEST, LossScale


def make_update(
    strategy: tf.distribute.Strategy,
    optimizer: keras.optimizers.Optimizer,
    variables: list[keras.Variable],
    statistics: list[keras.Variable],
    *,
    ema: Ema,
    clip: Clip | None,
    loss_scale: LossScale | None,
) -> Callable[[list[tf.Tensor], tf.Tensor, list[tf.Tensor], tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Returns update(sums, loss, before, healthy), for a graph outside of the replicas.

    `sums` are the gradients of `variables`, the same on every replica. They are clipped and applied if loss and
    gradients are finite and `healthy` is True; otherwise `statistics` become again what they were `before`. It returns
    what becomes of `healthy`, and whether the gradients were applied: with a loss scale a step that is not finite stays
    healthy as long as the scale can fall.
    """

    def apply(sums: list[tf.Tensor]) -> None:
        optimizer.apply(clip_gradients(sums, clip) if clip else sums, variables)
        ema.update(tf.convert_to_tensor(optimizer.iterations))

    def restore(before: list[tf.Tensor]) -> None:
        for statistic, value in zip(statistics, before, strict=True):
            statistic.assign(value)

    def update(
        sums: list[tf.Tensor], loss: tf.Tensor, before: list[tf.Tensor], healthy: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        norm = tf.linalg.global_norm([strategy.experimental_local_results(each)[0] for each in sums])
        finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        healthy &= finite if loss_scale is None else finite | (loss_scale.value() > SMALLEST)
        applied = healthy & finite
        # Outside the replicas: a condition round Keras's merge_call inside one cannot be traced.
        tf.cond(
            applied,
            lambda: strategy.run(apply, args=(sums,)),
            lambda: strategy.run(restore, args=(before,)) if statistics else None,
        )
        if loss_scale is not None:
            loss_scale.update(finite)
        return healthy, applied

    return update


def batch_statistics(model: keras.Model) -> list[keras.Variable]:
    """Returns what the forward pass of a training step may change in a model, besides the states of random numbers."""
    return [variable for variable in model.non_trainable_variables if keras.backend.is_float_dtype(variable.dtype)]


def clip_gradients(gradients: list[tf.Tensor], clip: Clip) -> list[tf.Tensor]:
    """Returns gradients that keep `clip`, of the same shapes; those within its limit as they are."""
    if clip.by == "global_norm":
        return list(tf.clip_by_global_norm(gradients, clip.limit)[0])
    by = tf.clip_by_norm if clip.by == "variable_norm" else _clip_by_value
    return [by(gradient, clip.limit) for gradient in gradients]


def _clip_by_value(gradient: tf.Tensor, limit: float) -> tf.Tensor:
    return tf.clip_by_value(gradient, -limit, limit)
