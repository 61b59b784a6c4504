"""The update: what is done once in a step with the gradients that are summed over all replicas."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tasks.optimization import Clip


def make_update(
    strategy: tf.distribute.Strategy,
    optimizer: keras.optimizers.Optimizer,
    variables: list[keras.Variable],
    *,
    clip: Clip | None,
) -> Callable[[list[tf.Tensor], tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns update(sums, loss, healthy), for a graph outside of the replicas; it returns what becomes of `healthy`.

    `sums` are the gradients of `variables`, the same on every replica; they are clipped and applied if loss and
    gradients are finite and `healthy` is True, otherwise not.
    """

    def apply(sums: list[tf.Tensor]) -> None:
        optimizer.apply(clip_gradients(sums, clip) if clip else sums, variables)

    def update(sums: list[tf.Tensor], loss: tf.Tensor, healthy: tf.Tensor) -> tf.Tensor:
        norm = tf.linalg.global_norm([strategy.experimental_local_results(each)[0] for each in sums])
        healthy &= tf.math.is_finite(loss) & tf.math.is_finite(norm)
        # Outside the replicas: a condition round Keras's merge_call inside one cannot be traced.
        tf.cond(healthy, lambda: strategy.run(apply, args=(sums,)), lambda: None)
        return healthy

    return update


def clip_gradients(gradients: list[tf.Tensor], clip: Clip) -> list[tf.Tensor]:
    """Returns gradients that keep `clip`, of the same shapes; those within its limit as they are."""
    if clip.by == "global_norm":
        return list(tf.clip_by_global_norm(gradients, clip.limit)[0])
    by = tf.clip_by_norm if clip.by == "variable_norm" else _clip_by_value
    return [by(gradient, clip.limit) for gradient in gradients]


def _clip_by_value(gradient: tf.Tensor, limit: float) -> tf.Tensor:
    return tf.clip_by_value(gradient, -limit, limit)
