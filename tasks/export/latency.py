"""The latency: how long the exported model takes to answer, measured in a process that does nothing else."""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.export.manifest import LATENCY_BATCH_SIZES, Latency
from tasks.workers.child import progress

_NUM_WARM_UP = 5  # calls, in which memory is allocated and kernels are chosen
_MAX_SECONDS = 30  # for a batch size; a model that is slow gets fewer calls


def measure(
    signature: Callable[..., Mapping[str, tf.Tensor]], arguments: Mapping[str, tf.Tensor], *, num_calls: int
) -> list[Latency]:
    """Returns the latency of a signature for one example and for 64, taken in turn from `arguments`, [n, ...] each.

    A call ends when its answer lies in the memory of the host. A batch that the device has no memory for is left out.
    """
    num_examples = len(next(iter(arguments.values())))
    found = []
    for batch_size in LATENCY_BATCH_SIZES:
        rows = np.arange(batch_size) % num_examples
        batch = {name: tf.gather(value, rows) for name, value in arguments.items()}
        with contextlib.suppress(tf.errors.ResourceExhaustedError):  # the stage says so
            found.append(_measure(signature, batch, batch_size=batch_size, num_calls=num_calls))
    return found


def _measure(
    signature: Callable[..., Mapping[str, tf.Tensor]], batch: dict[str, Any], *, batch_size: int, num_calls: int
) -> Latency:
    milliseconds: list[float] = []
    deadline = time.perf_counter() + _MAX_SECONDS
    while len(milliseconds) < _NUM_WARM_UP + num_calls:
        begin = time.perf_counter()
        if begin > deadline and len(milliseconds) > _NUM_WARM_UP:
            break
        for value in signature(**batch).values():
            value.numpy()
        milliseconds.append(1000 * (time.perf_counter() - begin))
        progress("parity", batch_size=batch_size, num_calls=len(milliseconds))
    timed = milliseconds[_NUM_WARM_UP:]
    p50, p95 = np.percentile(timed, [50, 95]).tolist()
    return Latency(batch_size=batch_size, num_calls=len(timed), p50_ms=p50, p95_ms=p95)
