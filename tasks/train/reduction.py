"""Reduction: the sum over the replicas, once a step."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tasks.distribution import AllReduced, Distribute
from tasks.workers.devices import communication_options

Sum = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], tuple[list[tf.Tensor], list[tf.Tensor]]]


def make_sum(distribute: Distribute) -> Sum:
    """Returns add(gradients, figures), for use in a replica: both summed over all replicas, in their own dtypes.

    The figures ride along with the gradients; with `distribute.reduce_dtype` these alone are rounded to it, once.
    """
    options = communication_options(distribute) if isinstance(distribute, AllReduced) else None
    dtype = distribute.reduce_dtype if isinstance(distribute, AllReduced) else None

    def add(gradients: Sequence[tf.Tensor], figures: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        sent = [tf.cast(gradient, dtype or gradient.dtype) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [*sent, *figures], options=options)
        count = len(gradients)
        return [tf.cast(s, g.dtype) for s, g in zip(sums[:count], gradients, strict=True)], list(sums[count:])

    return add
