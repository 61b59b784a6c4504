"""The latency: how long the exported model takes to answer, measured in a process that does nothing else."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.export.manifest import Latency
from tasks.workers.child import progress

BATCH_SIZES = (1, 64)
_NUM_WARM_UP = 5  # calls, in which memory is allocated and kernels are chosen


def measure(
    signature: Callable[..., Mapping[str, tf.Tensor]], arguments: Mapping[str, tf.Tensor], *, num_calls: int
) -> list[Latency]:
    """Returns the latency of a signature for one example and for 64, taken in turn from `arguments`, [n, ...] each.

    A call ends when its answer lies in the memory of the host.
    """
    num_examples = len(next(iter(arguments.values())))
    return [
        _measure(
            signature,
            {name: tf.gather(value, np.arange(batch_size) % num_examples) for name, value in arguments.items()},
            batch_size=batch_size,
            num_calls=num_calls,
        )
        for batch_size in BATCH_SIZES
    ]


def _measure(
    signature: Callable[..., Mapping[str, tf.Tensor]], batch: dict[str, Any], *, batch_size: int, num_calls: int
) -> Latency:
    milliseconds = []
    for number in range(_NUM_WARM_UP + num_calls):
        begin = time.perf_counter()
        for value in signature(**batch).values():
            value.numpy()
        milliseconds.append(1000 * (time.perf_counter() - begin))
        progress("latency", batch_size=batch_size, num_calls=number + 1)
    p50, p95 = np.percentile(milliseconds[_NUM_WARM_UP:], [50, 95]).tolist()
    return Latency(batch_size=batch_size, num_calls=num_calls, p50_ms=p50, p95_ms=p95)
