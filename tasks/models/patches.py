"""Patches: what is changed in Keras's own layers and optimizers, so that any number of replicas computes the same.

Each is of one instance, and a layer's takes effect only within the replicas' training step: in evaluation, in the
exported model and elsewhere it is Keras's own. The names of Keras that they rely on are tested in
tests/models/test_patches.py.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tasks.models.draws import kept, normal
from tasks.models.layers import StatelessDropout
from tasks.models.moments import update_moments
from tasks.models.rows import current_rows

layers = keras.layers
Patch = Callable[[Any, Iterator[int]], None]
# Of a regulariser that is a sum over all elements, to which zeros add nothing.
ADDITIVE = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
ALPHA = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946  # Klambauer et al. 2017, as in Keras


def make_invariant(model: keras.Model) -> None:
    """Patches the stock layers of `model` whose result would depend on the number of replicas, nested ones included.

    Batch normalisation is over the global batch; random layers draw by (seed, layer, step, row) and not by a `seed` of
    their own. Call it once, before the model is traced.
    """
    streams = itertools.count()
    for layer in model._flatten_layers():
        if isinstance(layer, StatelessDropout):
            layer.stream = next(streams)
        patch, _ = _look_at(layer)
        if patch is not None:
            patch(layer, streams)
        if type(layer.activity_regularizer) in ADDITIVE:
            _patch_activity_regularizer(layer)


def take_off_regularizers(model: keras.Model) -> None:
    """Gives the layers of `model` their own activity regularisers again, for a config that Keras alone can read."""
    for layer in model._flatten_layers():
        if isinstance(layer.activity_regularizer, _OverExamples):
            layer.activity_regularizer = layer.activity_regularizer.regularizer


def leave_gradients_as_they_are(optimizer: keras.optimizers.Optimizer) -> None:
    """Switches off the optimizer's own sum over the replicas, for gradients that are summed already."""
    assert hasattr(optimizer, "_all_reduce_sum_gradients"), "a private name of Keras that a test watches"
    optimizer._all_reduce_sum_gradients = list  # (gradient, variable) pairs in, the same out


def varying_layers(model: keras.Model) -> list[str]:
    """Returns, for each layer of `model` whose result depends on the number of replicas all the same, which and why."""
    found = []
    for layer in model._flatten_layers():
        _, reason = _look_at(layer)
        if reason is None and layer.activity_regularizer is not None and not _is_additive(layer.activity_regularizer):
            reason = "its activity_regularizer is none of L1, L2 and L1L2"
        if reason is not None:
            found.append(f"{layer.name} ({type(layer).__name__}): {reason}")
    return found


def _look_at(layer: keras.layers.Layer) -> tuple[Patch | None, str | None]:
    """Returns the patch of a layer, or why there is none though it is called for; neither for most layers."""
    for is_so, reason in (
        (
            isinstance(layer, layers.RNN) and layer.stateful,
            "stateful=True carries states from the examples of one batch to those of the next",
        ),
        (
            isinstance(layer, layers.BatchNormalization) and layer.renorm,
            "renorm=True is not known over the global batch; take renorm=False",
        ),
        (
            (getattr(layer, "noise_shape", None) or (None,))[0] not in (None, 1),
            "its noise_shape fixes the number of examples; begin it with None or 1",
        ),
    ):
        if is_so:
            return None, reason
    for kind, (method, patch) in _PATCHES.items():
        if isinstance(layer, kind):
            is_stock = getattr(type(layer), method) is getattr(kind, method)
            return (patch, None) if is_stock else (None, f"its class changes {method} of {kind.__name__}")
    if layer._seed_generators:
        return None, "it draws random numbers of its own; take StatelessDropout, Keras's dropout or feed.augment"
    return None, None


def _is_additive(regularizer: Any) -> bool:
    return type(regularizer) in ADDITIVE or isinstance(regularizer, _OverExamples)


def _patch_batch_normalization(layer: Any, streams: Iterator[int]) -> None:
    def call(inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        if not (training and layer.trainable) or current_rows() is None:
            return layers.BatchNormalization.call(layer, inputs, training=training, mask=mask)
        wide = tf.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        mean, variance = update_moments(layer, wide, axis=layer.axis, mask=mask)
        outputs = keras.ops.batch_normalization(
            wide,
            mean,
            variance,
            layer.axis,
            offset=tf.cast(layer.beta, wide.dtype) if layer.center else None,
            scale=tf.cast(layer.gamma, wide.dtype) if layer.scale else None,
            epsilon=layer.epsilon,
        )
        return tf.cast(outputs, layer.compute_dtype)

    layer.call = call


def _patch_random(draw: Callable[[Any, Any, int, tf.Tensor], tf.Tensor], strength: str) -> Patch:
    """Returns the patch of a layer that is random in training only, as `draw`(layer, rows, stream, inputs) says; it is
    not if its attribute `strength` is 0."""

    def patch(layer: Any, streams: Iterator[int]) -> None:
        stream = next(streams)

        def call(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
            rows = current_rows()
            if not training or rows is None or getattr(layer, strength) == 0:
                return type(layer).call(layer, inputs, training=training)
            return draw(layer, rows, stream, inputs)

        layer.call = call

    return patch


def _dropout(layer: Any, rows: Any, stream: int, inputs: tf.Tensor) -> tf.Tensor:
    return _dropped(rows, stream, inputs, layer.rate, _noise_shape(layer, inputs))


def _dropped(rows: Any, stream: int, inputs: tf.Tensor, rate: float, shape: tf.Tensor) -> tf.Tensor:
    if rate == 1:
        return tf.zeros_like(inputs)
    keep = kept(rows, stream, shape, rate=rate)
    return tf.where(keep, inputs / (1 - rate), tf.zeros_like(inputs))


def _noise_shape(layer: Any, inputs: tf.Tensor) -> tf.Tensor:
    """Returns the shape of the mask of a dropout layer, which is broadcast over the inputs."""
    shape = tf.shape(inputs)
    if isinstance(layer, _SPATIAL):
        given = layer._get_noise_shape(inputs)
    else:
        given = layer.noise_shape or (None,) * len(inputs.shape)
    return tf.stack([shape[axis] if length is None else length for axis, length in enumerate(given)])


def _gaussian_dropout(layer: Any, rows: Any, stream: int, inputs: tf.Tensor) -> tf.Tensor:
    deviation = math.sqrt(layer.rate / (1 - layer.rate))
    return inputs * (1 + deviation * normal(rows, stream, tf.shape(inputs), inputs.dtype))


def _gaussian_noise(layer: Any, rows: Any, stream: int, inputs: tf.Tensor) -> tf.Tensor:
    return inputs + layer.stddev * normal(rows, stream, tf.shape(inputs), inputs.dtype)


def _alpha_dropout(layer: Any, rows: Any, stream: int, inputs: tf.Tensor) -> tf.Tensor:
    rate = layer.rate
    keep = kept(rows, stream, _noise_shape(layer, inputs), rate=rate)
    scale = ((1 - rate) * (1 + rate * ALPHA**2)) ** -0.5
    return scale * tf.where(keep, inputs, tf.cast(ALPHA, inputs.dtype)) - scale * ALPHA * rate


def _stochastic_depth(layer: Any, rows: Any, stream: int, inputs: tf.Tensor) -> tf.Tensor:
    shape = tf.concat([tf.shape(inputs)[:1], tf.ones(len(inputs.shape) - 1, tf.int32)], axis=0)
    return _dropped(rows, stream, inputs, layer.drop_path_rate, shape)


def _patch_attention(layer: Any, streams: Iterator[int]) -> None:
    stream = next(streams)

    def apply_scores(
        scores: tf.Tensor, value: tf.Tensor, scores_mask: tf.Tensor | None = None, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows = current_rows()
        inert = not training or rows is None or layer.dropout == 0
        stock = layers.Attention._apply_scores
        outputs, weights = stock(layer, scores, value, scores_mask, training=training and inert)
        if inert or rows is None:
            return outputs, weights
        weights = _dropped(rows, stream, weights, layer.dropout, tf.shape(weights))
        return tf.matmul(weights, value), weights

    layer._apply_scores = apply_scores


def _patch_cell(cell: Any, streams: Iterator[int]) -> None:
    stream = next(streams)

    def create_dropout_mask(step_input: tf.Tensor, dropout_rate: float) -> Any:
        rows = current_rows()
        if rows is None:
            return _DROPOUT_CELL._create_dropout_mask(cell, step_input, dropout_rate)
        count = getattr(cell, "dropout_mask_count", None)
        ones = tf.ones_like(step_input)
        masks = [_dropped(rows, stream, ones, dropout_rate, tf.shape(ones)) for _ in range(count or 1)]
        return masks if count else masks[0]

    cell._create_dropout_mask = create_dropout_mask


class _OverExamples:
    """An activity regulariser that takes the mean over the global batch's examples, padding left out."""

    def __init__(self, regularizer: keras.regularizers.Regularizer) -> None:
        self.regularizer = regularizer

    def __call__(self, output: tf.Tensor) -> tf.Tensor:
        rows = current_rows()
        per_example = rows.per_example(output.shape[0]) if rows is not None and len(output.shape) else 0
        if rows is None or not per_example:
            return self.regularizer(output)
        output = tf.cast(output, keras.config.floatx())  # 16 bits do not hold a sum of squares
        valid = tf.reshape(tf.repeat(rows.mask, per_example), [-1] + [1] * (len(output.shape) - 1))
        # Keras divides by the rows of this output, and the step by the parts: together by those of the global batch.
        share = output.shape[0] * rows.num_parts / (tf.cast(rows.num_valid, output.dtype) * per_example)
        return self.regularizer(tf.where(valid, output, tf.zeros_like(output))) * share

    def get_config(self) -> dict[str, Any]:
        return self.regularizer.get_config()


def _patch_activity_regularizer(layer: Any) -> None:
    layer.activity_regularizer = _OverExamples(layer.activity_regularizer)


# The base of every recurrent cell that has dropout, which Keras does not export.
_DROPOUT_CELL: Any = next(base for base in layers.LSTMCell.__mro__ if "_create_dropout_mask" in vars(base))
# Of ConvNeXt, which does not export it; its draws have no seed of its own.
_STOCHASTIC_DEPTH: Any = sys.modules[keras.applications.ConvNeXtTiny.__module__].StochasticDepth
_SPATIAL = (layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D)
# By class: the method that must be Keras's own, and the patch. A subclass comes before its base.
_PATCHES: dict[type, tuple[str, Patch]] = {
    layers.BatchNormalization: ("call", _patch_batch_normalization),
    **{kind: ("call", _patch_random(_dropout, "rate")) for kind in (*_SPATIAL, layers.Dropout)},
    layers.GaussianDropout: ("call", _patch_random(_gaussian_dropout, "rate")),
    layers.GaussianNoise: ("call", _patch_random(_gaussian_noise, "stddev")),
    layers.AlphaDropout: ("call", _patch_random(_alpha_dropout, "rate")),
    _STOCHASTIC_DEPTH: ("call", _patch_random(_stochastic_depth, "drop_path_rate")),
    _DROPOUT_CELL: ("_create_dropout_mask", _patch_cell),
    layers.Attention: ("_apply_scores", _patch_attention),  # AdditiveAttention is one
}
