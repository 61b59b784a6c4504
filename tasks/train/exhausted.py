"""Exhausted memory: the microbatch is halved, or the training is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from tasks.errors import ConfigError, OutOfMemory
from tasks.models.layers import takes_batch_statistics
from tasks.runs import Run
from tasks.train.microbatch import MICROBATCH, Microbatch
from tasks.train.setup import Setup


@contextmanager
def smaller_if_exhausted(run: Run, setup: Setup) -> Iterator[None]:
    """Halves the run's microbatch if the block runs out of a device's memory, and raises OutOfMemory.

    Raises ConfigError if it may not: one row cannot be halved, and with batch statistics the weights would be others.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        rows, smaller = setup.feed.microbatch, -(-setup.feed.microbatch // 2)
        what = str(error.message).splitlines()[0]
        if rows == 1:
            raise ConfigError(
                f"train.microbatch=1: not even one example at a time fits into the memory of a device ({what}); take a "
                "smaller model, train.recompute=true or train.precision=mixed_bfloat16"
            ) from error
        if takes_batch_statistics(setup.model) and not run.config.train.allow_bn_change:
            raise ConfigError(
                f"train.microbatch={rows}: {rows} examples at once do not fit into the memory of a device ({what}), "
                f"and to take {smaller} would give other weights, since the model normalises over those that are taken "
                "at once; go on so with train.allow_bn_change=true, or begin a new run on devices with more memory"
            ) from error
        Microbatch(rows=smaller).write(run.directory / MICROBATCH)
        raise OutOfMemory(
            f"{rows} examples at once do not fit into the memory of a device ({what}); goes on with {smaller}, from "
            "the last checkpoint"
        ) from error
