"""The EMA: exponential moving averages of the weights, kept beside them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
import tensorflow as tf

from tasks.optimization import EmaConfig


class Ema:
    """An average of each variable, w_1 after the first update and then momentum * average + (1 - momentum) * w.

    Every replica computes the same averages of the same weights, so each keeps its own and none sends anything.
    """

    def __init__(self, variables: Sequence[keras.Variable], config: EmaConfig | None) -> None:
        """Call it in the strategy's scope; `variables` are a model's, of which none is averaged without a config."""
        floats = [variable for variable in variables if keras.backend.is_float_dtype(variable.dtype)]
        self._config = config or EmaConfig()
        self._averaged = floats if config is not None else []
        self.variables = [
            keras.Variable(
                tf.convert_to_tensor(variable.value),
                trainable=False,
                dtype=variable.dtype,
                synchronization="on_read",
                aggregation="only_first_replica",
                name=f"ema_{variable.path.replace('/', '_')}",
            )
            for variable in self._averaged
        ]

    def update(self, num_updates: tf.Tensor) -> None:
        """Takes the weights into the averages; `num_updates`, [] int, are done, this one included. In each replica."""
        for average, variable in zip(self.variables, self._averaged, strict=True):
            kept = tf.cast(num_updates > 1, average.dtype) * tf.constant(self._config.momentum, average.dtype)
            average.assign(kept * average.value + (1 - kept) * variable.value)

    def put_in_place(self) -> None:
        """Gives the model the averages for its weights, if it is they that are evaluated."""
        if self._config.evaluate:
            _assign(self._averaged, [tf.convert_to_tensor(average.value) for average in self.variables])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Does the same for the block only; after it the model has its own weights again, to the bit."""
        if not self._config.evaluate:
            yield
            return
        weights = [tf.identity(variable.value) for variable in self._averaged]
        self.put_in_place()
        try:
            yield
        finally:
            _assign(self._averaged, weights)


def _assign(variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
