"""Non-finite: what becomes of a training whose loss, gradient or weight is no number any more."""

import logging

import tensorflow as tf

from tasks import events
from tasks.errors import TrainingError
from tasks.runs import Run
from tasks.train import checkpoint
from tasks.train.checkpoint import Position
from tasks.train.setup import Setup
from tasks.workers.child import progress

IDS_SHOWN = 8  # of a batch
logger = logging.getLogger("millstream")


def weights_are_finite(setup: Setup) -> bool:
    """Returns whether every number of the model and the optimizer is finite: an update may overflow on its own."""
    values = [tf.convert_to_tensor(variable.value) for variable in setup.variables]
    return all(bool(tf.reduce_all(tf.math.is_finite(value))) for value in values if value.dtype.is_floating)


def roll_back(run: Run, setup: Setup, position: Position, *, step: int, what: str) -> Position:
    """Returns the position of the newest good checkpoint, now in the variables, from which `step` will be skipped.

    `step` is the one (from 0) on whose global batch `what`, such as "loss or gradient", is not finite; `position` is
    where that was found. Raises TrainingError, with the examples of that batch, if `train.on_nonfinite` is stop, if
    `train.max_rollbacks` are used up, or if there is no good checkpoint.
    """
    config = run.config.train
    where = f"{_describe(setup, step)}: {what} is not finite"
    if config.on_nonfinite == "stop":
        raise TrainingError(
            f"{where}; nothing of it was saved and the last checkpoint stays; look at these examples, try a lower "
            "train.optimizer.learning_rate or train.clip.limit=1.0, or go on without them: train.on_nonfinite=rollback"
        )
    skipped, limit = (*position.skipped, step), config.max_rollbacks
    if len(skipped) > limit:
        before = ", ".join(str(number + 1) for number in position.skipped) or "none"
        raise TrainingError(
            f"{where}, and train.max_rollbacks={limit} is used up (steps skipped: {before}); nothing of it was saved "
            "and the last checkpoint stays; try a lower train.optimizer.learning_rate or train.clip.limit=1.0"
        )
    found = checkpoint.restore_newest(run.checkpoints, setup.variables)
    if found is None:
        raise TrainingError(f"{where}, and no checkpoint is whole to go back to; begin a new run with --fresh")
    line = f"{where}; back to step {found.step}, to go on without them (rollback {len(skipped)} of {limit})"
    logger.warning(line)
    progress("note", line=line)
    if setup.team.is_chief:
        events.append(run.events, {"rollbacks": len(skipped)}, step=step)
    return found.model_copy(update={"skipped": skipped})


def _describe(setup: Setup, step: int) -> str:
    epoch, batch = divmod(step, setup.feed.steps_per_epoch)
    where = f"step {step + 1} of {setup.total_steps} (epoch {epoch + 1}, batch {batch + 1}) on its"
    ids = setup.feed.ids(step)
    if ids is None:
        return f"{where} examples (feed.service handed them on in an order of its own)"
    shown = ", ".join(map(str, ids[:IDS_SHOWN])) + (", ..." if len(ids) > IDS_SHOWN else "")
    return f"{where} {len(ids)} examples (ids {shown})"
