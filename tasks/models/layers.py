"""Layers that compute the same on any number of replicas, where Keras's own do not."""

from typing import Any

import keras
import tensorflow as tf

from tasks.models.rows import ReplicaRows, current_rows

PHILOX = 1  # tf.random.Algorithm.PHILOX, as the raw ops want it
WORDS_PER_COUNT = 4  # uint32 words that one count of Philox4x32 yields (Salmon et al., SC 2011)


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
        self.stream = 0  # set by number_random_layers: tells this layer's masks from the others'

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns `inputs` of any shape [b, ...] with a share of `rate` set to 0 and the rest scaled up."""
        if not training or self.rate == 0:
            return inputs
        rows = current_rows()
        assert rows is not None, f"{self.name} was called with training=True outside a replica step"
        keep = random_words(rows, self.stream, tf.shape(inputs)) >= tf.constant(round(self.rate * 2**32), tf.uint32)
        return tf.where(keep, inputs / (1 - self.rate), tf.zeros_like(inputs))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate}


class SyncBatchNorm(keras.layers.Layer):
    """Batch normalisation over the last axis, with the statistics of the whole global batch, padding left out.

    One all-reduce a call. Moments are taken about the moving mean, so that a single pass loses no precision
    (shifted data, Chan, Golub and LeVeque 1983).
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
        mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        if training:
            mean, variance, count = self._batch_moments(inputs, shift=mean)
            self.moving_mean.assign(self._blend(self.moving_mean, mean, count))
            self.moving_variance.assign(self._blend(self.moving_variance, variance, count))
        scale = tf.convert_to_tensor(self.gamma) * tf.math.rsqrt(variance + self.epsilon)
        return tf.cast(inputs * scale + (self.beta - mean * scale), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "epsilon": self.epsilon}

    def _batch_moments(self, inputs: tf.Tensor, *, shift: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns mean [c], variance [c] and of how many values [] they are."""
        rows = current_rows()
        weight = tf.ones_like(inputs[..., :1])
        if rows is not None:
            weight *= tf.cast(tf.reshape(rows.mask, [-1] + [1] * (len(inputs.shape) - 1)), inputs.dtype)
        axes = list(range(len(inputs.shape) - 1))
        shifted = inputs - shift
        first = tf.reduce_sum(weight * shifted, axes)
        second = tf.reduce_sum(weight * tf.square(shifted), axes)
        sums = tf.concat([first, second, tf.reshape(tf.reduce_sum(weight), [1])], axis=0)
        if rows is not None and rows.num_replicas > 1:
            sums = tf.distribute.get_replica_context().all_reduce("SUM", sums)
        count = sums[-1]
        first, second = tf.split(sums[:-1] / tf.maximum(count, 1), 2)
        return shift + first, tf.maximum(second - tf.square(first), 0), count

    def _blend(self, old: tf.Tensor, new: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        # A microbatch beyond the end of a short batch is all padding, and says nothing.
        blended = old * self.momentum + tf.stop_gradient(new) * (1 - self.momentum)
        return tf.where(count > 0, blended, old)


def takes_batch_statistics(model: keras.Model) -> bool:
    """Returns whether a layer of `model` normalises over the batch, so that it matters which examples come together."""
    return any(isinstance(layer, SyncBatchNorm | keras.layers.BatchNormalization) for layer in model._flatten_layers())


def number_random_layers(model: keras.Model) -> None:
    """Gives each StatelessDropout of `model` its own stream, by its place in the model."""
    random_layers = [layer for layer in model._flatten_layers() if isinstance(layer, StatelessDropout)]
    for stream, layer in enumerate(random_layers):
        layer.stream = stream


def random_words(rows: ReplicaRows, stream: int, shape: tf.Tensor) -> tf.Tensor:
    """Returns `shape` [b, ...] uint32, uniform: this replica's rows of what one replica would draw for all of them."""
    call = rows.calls.get(stream, 0)
    rows.calls[stream] = call + 1
    assert stream < 2**16, "packed with a call < 2**8 and train.seed < 2**31 into one int64"
    assert call < 2**8, "packed, as above"
    seed = tf.stack([tf.constant((rows.seed << 24) | (stream << 8) | call, tf.int64), rows.step])
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    # Rows are padded to whole counts, so that each begins at a count of its own.
    counts_per_row = tf.cast(tf.math.ceil(tf.reduce_prod(shape[1:]) / WORDS_PER_COUNT), tf.int64)
    offset = tf.cast(rows.first_row * counts_per_row, tf.uint64)
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([tf.cast(shape[0], tf.int64), counts_per_row * WORDS_PER_COUNT]),
        key=key,
        counter=counter + tf.stack([offset, tf.zeros_like(offset)]),
        alg=PHILOX,
        dtype=tf.uint32,
    )
    return tf.reshape(words[:, : tf.reduce_prod(shape[1:])], shape)


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
