"""The loss scale: keeps small gradients of float16 from becoming zero, and falls when large ones overflow."""

import keras
import tensorflow as tf

INITIAL, SMALLEST, LARGEST = 2.0**15, 1.0, 2.0**24
GOOD_STEPS_TO_DOUBLE = 2000


class LossScale:
    """A power of 2 by which the loss is multiplied before the backward pass, and the gradients are divided after it.

    A step that overflows halves it; it is doubled after `good_steps_to_double` steps without one. Its variables belong
    in a checkpoint. Make it in the strategy's scope.
    """

    def __init__(self, *, good_steps_to_double: int = GOOD_STEPS_TO_DOUBLE) -> None:
        self._good_steps_to_double = good_steps_to_double
        self._scale = keras.Variable(INITIAL, dtype="float32", trainable=False, name="loss_scale")
        self._good_steps = keras.Variable(0, dtype="int64", trainable=False, name="good_steps")

    @property
    def variables(self) -> list[keras.Variable]:
        return [self._scale, self._good_steps]

    def value(self) -> tf.Tensor:
        """Returns [] float32."""
        return tf.convert_to_tensor(self._scale.value)

    def update(self, finite: tf.Tensor) -> None:
        """Takes note of whether a step's loss and gradients, summed over the replicas, are finite ([] bool).

        Call it outside of the replicas.
        """
        scale, good_steps = self.value(), tf.convert_to_tensor(self._good_steps.value) + 1
        is_due = good_steps >= self._good_steps_to_double
        raised = tf.where(is_due, tf.minimum(2 * scale, LARGEST), scale)
        self._scale.assign(tf.where(finite, raised, tf.maximum(scale / 2, SMALLEST)))
        self._good_steps.assign(tf.where(finite & ~is_due, good_steps, 0))
