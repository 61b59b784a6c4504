"""The trial: whether a few steps fit into the memory of the devices, and what is done when some do not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tasks.errors import ConfigError, OutOfMemory
from tasks.models.layers import takes_batch_statistics
from tasks.prepare.manifest import Shards
from tasks.runs import Run, find_run
from tasks.train.batches import batches_of
from tasks.train.clock import in_graph_clock
from tasks.train.microbatch import MICROBATCH, Microbatch
from tasks.train.setup import Setup, set_up
from tasks.train.step import make_run_steps
from tasks.workers.child import progress

TRIED_STEPS = 2  # the second has what the first left: the optimizer's variables, a full feed


def try_steps(workspace: str, run_id: str, shards: dict[str, Any], rows: int | None) -> dict[str, Any]:
    """Returns {"fits", "slice_rows"}: whether steps with so many rows at once fit into memory, and a replica's rows.

    Nothing of what is computed is kept. Runs in a worker process.
    """
    progress("start")
    run = find_run(Path(workspace), run_id)
    setup = set_up(run, Shards.model_validate(shards), microbatch=rows)
    clock = in_graph_clock(deterministic=run.config.train.deterministic)
    run_steps = make_run_steps(setup, run.config.train, clock=clock)
    progress("compile")
    found = {"slice_rows": setup.feed.slice_rows}
    try:
        run_steps(batches_of(setup.strategy, setup.feed.training(0)), tf.constant(TRIED_STEPS))
    except tf.errors.ResourceExhaustedError:
        return {"fits": False, **found}
    return {"fits": True, **found}


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
