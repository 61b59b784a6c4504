"""Moments: mean and variance over the whole global batch, padding left out, and the moving statistics they enter."""

from typing import Protocol

import keras
import tensorflow as tf

from tasks.errors import ConfigError
from tasks.models.rows import current_rows


class Normalization(Protocol):
    """What a layer of batch normalisation has, Keras's and ours."""

    name: str
    momentum: float
    moving_mean: keras.Variable
    moving_variance: keras.Variable


def update_moments(
    layer: Normalization, inputs: tf.Tensor, *, axis: int = -1, mask: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns mean [c] and variance [c] of `inputs` along `axis`, and takes them into the layer's moving statistics.

    One all-reduce. Moments are taken about the moving mean, so that a single pass loses no precision (shifted data,
    Chan, Golub and LeVeque 1983). `mask` has one axis less than `inputs`; False is left out, as padded rows are.
    """
    rows = current_rows()
    old = tf.cast(layer.moving_mean, inputs.dtype), tf.cast(layer.moving_variance, inputs.dtype)
    old, is_first_run = rows.before(old) if rows is not None else (old, True)
    axis %= len(inputs.shape)
    weight = _weight(layer, inputs, axis, mask)
    axes = [other for other in range(len(inputs.shape)) if other != axis]
    shifted = inputs - _along(old[0], axis, inputs)
    num_channels = inputs.shape[axis]
    sums = tf.concat(
        [
            tf.reduce_sum(weight * shifted, axes),
            tf.reduce_sum(weight * tf.square(shifted), axes),
            tf.reduce_sum(weight, axes),
        ],
        axis=0,
    )
    if rows is not None and rows.num_replicas > 1:
        sums = tf.distribute.get_replica_context().all_reduce("SUM", sums)
    first, second, count = tf.split(sums, [num_channels, num_channels, -1])
    first, second = first / tf.maximum(count, 1), second / tf.maximum(count, 1)
    new = old[0] + first, tf.maximum(second - tf.square(first), 0)
    if not is_first_run:
        return new
    for moving, before, now in zip((layer.moving_mean, layer.moving_variance), old, new, strict=True):
        blended = before * layer.momentum + tf.stop_gradient(now) * (1 - layer.momentum)
        # A microbatch beyond the end of a short batch is all padding, and says nothing.
        moving.assign(tf.cast(tf.where(count > 0, blended, before), moving.dtype))
    return new


def _weight(layer: Normalization, inputs: tf.Tensor, axis: int, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns 1 for what counts and 0 for what does not, to be multiplied with `inputs`; 1 wide along `axis`, if that
    is enough."""
    weight = tf.ones_like(tf.gather(inputs, [0], axis=axis))
    rows = current_rows()
    if rows is not None:
        per_example = rows.per_example(inputs.shape[0])
        if not per_example:
            raise ConfigError(
                f"model layer {layer.name}: is to normalise {inputs.shape[0]} rows over the batch, which are not the "
                f"{rows.mask.shape[0]} examples of a replica nor cut from them; let its first axis be the batch"
            )
        valid = tf.repeat(rows.mask, per_example) if per_example > 1 else rows.mask
        weight *= tf.cast(tf.reshape(valid, [-1] + [1] * (len(inputs.shape) - 1)), inputs.dtype)
    if mask is not None:
        weight *= tf.cast(tf.expand_dims(mask, -1), inputs.dtype)
    return weight


def _along(values: tf.Tensor, axis: int, inputs: tf.Tensor) -> tf.Tensor:
    """Returns values [c] shaped to be broadcast over `inputs`."""
    return tf.reshape(values, [-1 if other == axis else 1 for other in range(len(inputs.shape))])
