"""The parameter server: batches are handed to workers, which update shared weights without waiting for each other."""

import time
from dataclasses import replace

import tensorflow as tf

from tasks.config import TrainConfig
from tasks.train.setup import Setup
from tasks.train.step import RunSteps, StepOutcomes, make_step


def make_asynchronous_steps(setup: Setup, config: TrainConfig) -> RunSteps:
    """Returns run_steps(iterator, num_steps) as `make_run_steps` does; each step is a batch that some worker takes.

    A step's gradients are those of the weights as they were when its worker read them, which others may have changed
    since; one whose worker is lost is taken again by another, so that a batch may count twice. All are done when a call
    returns: a checkpoint between two calls is whole.
    """
    coordinator, optimizer = setup.coordinator, setup.optimizer
    assert coordinator is not None
    step = make_step(replace(setup, strategy=coordinator.strategy), config)

    @tf.function(autograph=False)
    def take(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        return step(batch, tf.constant(True))

    def run_steps(iterator: tf.data.Iterator, num_steps: tf.Tensor) -> StepOutcomes:
        begun, count, before = time.perf_counter(), int(num_steps), int(optimizer.iterations)
        waited, results, valid = 0.0, [], []
        for _ in range(count):
            asked = time.perf_counter()
            batch = next(iterator)
            waited += time.perf_counter() - asked
            valid.append(batch["num_valid"])
            results.append(coordinator.schedule(take, args=(batch,)))
        coordinator.join()
        # The workers read and write it without a lock, and lose counts.
        optimizer.iterations.assign(before + count)
        loss, score, healthy, applied = zip(*(result.fetch() for result in results), strict=True)
        elapsed = tf.range(1, count + 1, dtype=tf.float64) * ((time.perf_counter() - begun) / count)
        waits = tf.fill([count], tf.constant(waited / count, tf.float64))
        return StepOutcomes(
            tf.stack(loss), tf.stack(score), tf.stack(valid), tf.stack(healthy), tf.stack(applied), waits, elapsed
        )

    return run_steps
