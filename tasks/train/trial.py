"""The trial: whether a few steps fit into the memory of the devices."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from tasks.prepare.manifest import Shards
from tasks.runs import find_run
from tasks.train.batches import batches_of
from tasks.train.clock import in_graph_clock
from tasks.train.setup import set_up
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
