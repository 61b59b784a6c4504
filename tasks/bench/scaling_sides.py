"""Scaling sides: what a process measures on its number of replicas: the rate of a training, or of summing gradients."""

import time
from typing import Any

import tensorflow as tf

from tasks.bench.side_setup import set_up_side
from tasks.train.batches import batches_of
from tasks.train.clock import in_graph_clock, ready_wait_seconds
from tasks.train.reduction import make_sum
from tasks.train.step import make_run_steps
from tasks.train.timing import Timing
from tasks.workers.child import progress

WARMUP_STEPS = 4
SUMS = 8  # in a call of the graph
PERIOD = 7  # of the numbers that are summed: small and whole, so that every type holds their sum exactly


def throughput(
    config: dict[str, Any], shards: dict[str, Any], folder: str, num_steps: int, rounds: int
) -> dict[str, Any]:
    """Returns `examples_per_second`, one for each of `rounds` windows of `num_steps`, and `input_wait_fraction`."""
    setup, resolved = set_up_side(config, shards, folder)
    clock = in_graph_clock(deterministic=resolved.train.deterministic)
    run_steps = make_run_steps(setup, resolved.train, clock=clock)
    batches = batches_of(setup.strategy, setup.feed.training(0))
    timing = Timing(ready_wait_seconds(setup.strategy, setup.feed, clock))
    progress("compile")
    run_steps(batches, tf.constant(WARMUP_STEPS)).loss.numpy()
    rates = []
    for number in range(rounds):
        progress("step", step=number * num_steps, total=rounds * num_steps)
        begun = time.perf_counter()
        outcomes = run_steps(batches, tf.constant(num_steps))
        num_examples = int(outcomes.num_valid.numpy().sum())
        rates.append(num_examples / (time.perf_counter() - begun))
        timing.add(outcomes)
    return {"examples_per_second": rates, "input_wait_fraction": timing.figures()["input_wait_fraction"]}


def sum_gradients(config: dict[str, Any], shards: dict[str, Any], folder: str, rounds: int) -> dict[str, Any]:
    """Returns the fields of a Reduction: whole numbers in the shapes of the gradients, summed as a step does."""
    setup, resolved = set_up_side(config, shards, folder)
    add, strategy = make_sum(resolved.distribute), setup.strategy
    shapes = [(tuple(variable.shape), variable.dtype) for variable in setup.model.trainable_variables]
    num_replicas = strategy.num_replicas_in_sync

    def numbers(shape: tuple[int, ...], dtype: str) -> tf.Tensor:
        size = tf.reduce_prod(tf.constant(shape, tf.int32))
        return tf.cast(tf.reshape(tf.range(size) % PERIOD, shape), dtype)

    def replica(num_sums: int) -> list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        mine = [numbers(*shape) * tf.cast(context.replica_id_in_sync_group + 1, shape[1]) for shape in shapes]
        sums: list[tf.Tensor] = []
        for _ in range(num_sums):
            with tf.control_dependencies(sums):  # one after the other
                sums, _ = add([tf.identity(value) for value in mine], [])
        return sums

    @tf.function
    def wrong() -> tf.Tensor:
        expected = [numbers(*shape) * tf.cast(num_replicas * (num_replicas + 1) // 2, shape[1]) for shape in shapes]
        return tf.add_n(
            [
                tf.math.count_nonzero(part != want)
                for got, want in zip(strategy.run(replica, args=(1,)), expected, strict=True)
                for part in strategy.experimental_local_results(got)
            ]
        )

    @tf.function
    def several() -> tf.Tensor:
        sums = strategy.run(replica, args=(SUMS,))
        return tf.add_n([tf.reduce_sum(strategy.experimental_local_results(value)[0][..., :1]) for value in sums])

    progress("compile")
    is_right = int(wrong()) == 0
    float(several())
    seconds = []
    for _ in range(rounds):
        progress("step")
        begun = time.perf_counter()
        float(several())
        seconds.append((time.perf_counter() - begun) / SUMS)
    num_bytes = sum(int(tf.constant(shape).numpy().prod()) * tf.as_dtype(dtype).size for shape, dtype in shapes)
    return {"num_bytes": num_bytes, "seconds": min(seconds), "is_right": is_right}
