"""Batches: an iterator over the replicas' slices of a feed, and the next global batch of it."""

from typing import Any

import tensorflow as tf


def batches_of(strategy: tf.distribute.Strategy, slices: tf.data.Dataset) -> Any:
    """Returns an iterator for `next_batch` over the elements of a Feed, or others that come in turn for each replica.

    Where the replicas are parts of the host it reads the dataset itself: TensorFlow's distributed iterator would hand
    each slice from thread to thread, which takes longer (0.35 ms a step) than a step of a small model. Of a large one,
    on a busy host, replicas that are woken by one thread were seen to run less side by side (`millstream bench step`).
    """
    if _is_host(strategy):
        # One call a step, whatever the number of replicas: each is a change of threads.
        return iter(slices.batch(strategy.num_replicas_in_sync, drop_remainder=True).prefetch(1))
    return iter(strategy.distribute_datasets_from_function(lambda _: slices))


def next_batch(strategy: tf.distribute.Strategy, batches: Any) -> dict[str, tf.Tensor]:
    """Returns the next global batch, each value distributed over the replicas; in a graph or out of it."""
    if not _is_host(strategy):
        return next(batches)
    return {
        name: strategy.experimental_distribute_values_from_function(
            lambda context, column=column: column[context.replica_id_in_sync_group]
        )
        for name, column in next(batches).items()
    }


def _is_host(strategy: tf.distribute.Strategy) -> bool:
    kinds = (tf.distribute.MirroredStrategy, tf.distribute.OneDeviceStrategy)
    return isinstance(strategy, kinds) and all("CPU" in device for device in strategy.extended.worker_devices)
