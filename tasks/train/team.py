"""Team: the workers that do each step of a training together, and have to decide alike."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tasks.workers.cluster import place_in_cluster

# Types that no collective takes, and others that hold the same values.
_GATHERED = {tf.bool: tf.int32, tf.uint8: tf.int32, tf.int8: tf.int32, tf.int16: tf.int32, tf.bfloat16: tf.float32}


class Team:
    """This worker and the others; alone, whatever it decides is decided.

    A worker that stopped by itself, or took more steps in a call than the others, would leave them waiting in a
    collective for ever. So what does not follow from what all know (a signal, a clock, a file) is agreed on: each of
    these calls waits for all workers, and all must make it.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.worker, self.num_workers = place_in_cluster()
        self._strategy = strategy
        self._num_local = strategy.num_replicas_in_sync // self.num_workers
        self._sum = self._in_replicas(lambda context, number: context.all_reduce("SUM", number))
        self._gather = self._in_replicas(lambda context, rows: context.all_gather(rows, axis=0))

    @property
    def is_chief(self) -> bool:
        """Whether it is this worker that writes: checkpoints, metrics, the result."""
        return self.worker == 0

    def any(self, flag: bool) -> bool:
        """Returns whether one of the workers says so."""
        return flag if self.num_workers == 1 else self._add(int(flag)) > 0

    def of_chief(self, number: int) -> int:
        """Returns the chief's number."""
        return number if self.num_workers == 1 else self._add(number if self.is_chief else 0)

    def devices(self, own: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the replicas' devices, those of the other workers too."""
        workers = range(self.num_workers)
        return tuple(name.replace(f"task:{self.worker}", f"task:{worker}") for worker in workers for name in own)

    def rows(self, value: tf.Tensor) -> np.ndarray:
        """Returns the rows of all replicas of all workers, in their order, of a value of which each has some."""
        parts = self._strategy.experimental_local_results(value)
        if self.num_workers == 1:
            return np.concatenate([part.numpy() for part in parts])
        dtype = parts[0].dtype
        return self._gather(value, _GATHERED.get(dtype, dtype)).numpy().astype(dtype.as_numpy_dtype)

    def _add(self, number: int) -> int:
        return int(self._sum(tf.constant(number, tf.int64), tf.int64)) // self._num_local

    def _in_replicas(
        self, collective: Callable[[tf.distribute.ReplicaContext, tf.Tensor], tf.Tensor]
    ) -> Callable[[tf.Tensor, tf.DType], tf.Tensor]:
        """Returns run(value, dtype): the same result of a collective for all, of each replica's value as a dtype."""

        @tf.function(autograph=False, reduce_retracing=True)
        def run(value: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
            def replica(part: tf.Tensor) -> tf.Tensor:
                # The identity makes a value of the replica's own device, which a collective wants.
                own = tf.identity(tf.cast(part, dtype))
                return collective(tf.distribute.get_replica_context(), own)

            return self._strategy.experimental_local_results(self._strategy.run(replica, args=(value,)))[0]

        return run
