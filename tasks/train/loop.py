"""The training loop, from the devices to the last checkpoint; runs in a worker process."""

import contextlib
import logging
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from tasks import events
from tasks.config import TrainConfig
from tasks.errors import ConfigError, Stopped, TrainingError
from tasks.feed.advice import advise_on_wait
from tasks.prepare.manifest import Shards
from tasks.runs import Run, find_run
from tasks.train import checkpoint
from tasks.train.batches import batches_of, next_batch
from tasks.train.checkpoint import Position, Writer
from tasks.train.clock import Clock, in_graph_clock, ready_wait_seconds
from tasks.train.early_stopping import is_better, judge
from tasks.train.exhausted import smaller_if_exhausted
from tasks.train.flops import work_of
from tasks.train.nonfinite import roll_back, weights_are_finite
from tasks.train.parameter_server import make_asynchronous_steps
from tasks.train.profile import Take, profile_steps
from tasks.train.result import TrainResult
from tasks.train.setup import Setup, check_statistics, set_up
from tasks.train.step import RunSteps, StepOutcomes, in_plain_words, make_run_steps
from tasks.train.timing import Timing
from tasks.workers.child import progress, stop_if, stop_requested
from tasks.workers.cluster import is_led, serve

CALL_SECONDS = 2.0  # longest call of the in-graph loop, in which no signal is answered and no progress is told
logger = logging.getLogger("millstream")


def train(workspace: str, run_id: str, shards: dict[str, Any]) -> dict[str, Any]:
    """Returns the TrainResult of a run, as JSON: trains from its newest checkpoint, or the start, to `train.total`.

    Raises ConfigError before the first step if the config does not fit data or machine, TrainingError if a loss,
    gradient or weight is not finite and is not rolled back; Stopped, after a checkpoint, if a signal asked for it.
    In a worker of a parameter server it does what the chief asks for.
    """
    if is_led():
        serve()
    run = find_run(Path(workspace), run_id)
    config = run.config.train
    progress("start")
    setup = set_up(run, Shards.model_validate(shards))
    position = _begin(run, setup)
    resumed_from_step = position.step
    clock = in_graph_clock(deterministic=config.deterministic)
    run_steps = _make_run_steps(setup, config, clock)
    batches = _batches_from(setup, position.step)
    timing = Timing(ready_wait_seconds(setup.strategy, setup.feed, clock), work_of(setup))
    with Writer(run.checkpoints, keep=config.keep_checkpoints) as writer:
        if position.step == 0 and config.on_nonfinite == "rollback":
            _save(writer, setup, position)
        # Nothing is done yet, and to compile may take longer than whoever asked will wait.
        stop_if(setup.team.any(stop_requested()))
        phase = "compile"
        while not _is_done(setup, position):
            if position.step in position.skipped:
                next_batch(setup.strategy, batches)
                position = position.model_copy(update={"step": position.step + 1})
            elif not _epoch_is_open(setup, position):
                progress(phase)
                with smaller_if_exhausted(run, setup):
                    outcomes = _take_steps(run, setup, position, partial(in_plain_words, run_steps, batches), timing)
                phase = "steps"
                position = _advance(position, outcomes)
                if not bool(outcomes.healthy.numpy().all()):  # that step was not applied: the position is before it
                    what = "loss or gradient" + (", with the loss scale at its smallest," if setup.loss_scale else "")
                    position, batches = _go_back(run, setup, writer, position, step=position.step, what=what)
                    continue
                progress("step", step=position.step, total=setup.total_steps, **timing.figures())
            # Each asks at the same place, or one would wait for the others in the next step for ever.
            asked_to_stop = setup.team.any(stop_requested())
            if not (asked_to_stop or _ends_epoch(setup, position.step) or position.step % setup.checkpoint_every == 0):
                continue
            if not weights_are_finite(setup):
                what = "a weight or statistic after it"
                position, batches = _go_back(run, setup, writer, position, step=position.step - 1, what=what)
                continue
            progress("checkpoint", step=position.step)
            writer.wait()  # no figures are recorded beyond a checkpoint that is not there yet
            if _epoch_is_open(setup, position):
                with contextlib.suppress(Stopped):  # the next process validates
                    position = _close_epoch(run, setup, position, timing)
            _save(writer, setup, position)
            if setup.team.any(stop_requested()) and not _is_done(setup, position):  # also while it validated
                writer.wait()
                raise Stopped(
                    f"stopped by a signal at step {position.step} of {setup.total_steps}; "
                    "the checkpoint is saved, and the same command goes on from it"
                )
    if not setup.team.is_chief:
        return {}
    return _result(run, setup, position, resumed_from_step).model_dump(mode="json")


def _begin(run: Run, setup: Setup) -> Position:
    """Returns the position of the newest good checkpoint, which is loaded, or the start."""
    position = checkpoint.restore_newest(run.checkpoints, setup.variables) or Position()
    check_statistics(setup, position, allowed=run.config.train.allow_bn_change)
    if position.step and position.steps_per_epoch != setup.feed.steps_per_epoch:
        raise ConfigError(
            f"feed.shard_policy=files: so many workers make {setup.feed.steps_per_epoch} batches of an epoch, until "
            f"step {position.step} it were {position.steps_per_epoch}; go on with as many workers as before, or "
            "begin a new run with --fresh"
        )
    if position.step:
        progress("note", line=f"goes on from step {position.step} of {setup.total_steps}")
    return position.model_copy(
        update={
            "steps_per_epoch": setup.feed.steps_per_epoch,
            "statistics_rows": setup.statistics_rows,
            "precision": setup.precision,
        }
    )


def _make_run_steps(setup: Setup, config: TrainConfig, clock: Clock) -> RunSteps:
    if setup.coordinator is not None:
        return make_asynchronous_steps(setup, config)
    return make_run_steps(setup, config, clock=clock)


def _save(writer: Writer, setup: Setup, position: Position) -> None:
    """Begins to write the checkpoint of this position; the chief does, for all workers."""
    progress("checkpoint", step=position.step)
    if setup.team.is_chief:
        # One whose epoch is open is written anew once that is closed; till then another must stand beside it.
        writer.save(setup.variables, position, replaces_older=not _epoch_is_open(setup, position))


def _go_back(
    run: Run, setup: Setup, writer: Writer, position: Position, *, step: int, what: str
) -> tuple[Position, tf.data.Iterator]:
    """Returns the position of the newest good checkpoint, which is loaded, and the batches from there; `roll_back`
    says the rest.
    """
    progress("checkpoint", step=position.step)
    writer.wait()
    setup.team.any(False)  # no worker looks for the newest before the chief has written it
    position = roll_back(run, setup, position, step=step, what=what)
    return position, _batches_from(setup, position.step)


def _record(run: Run, setup: Setup, metrics: dict[str, float], *, step: int) -> None:
    """Adds to the run's metrics; the chief does, for all workers."""
    if setup.team.is_chief:
        events.append(run.events, metrics, step=step)


def _ends_epoch(setup: Setup, step: int) -> bool:
    """Returns whether this many steps end with an epoch, or, as the training does, within one."""
    return step % setup.feed.steps_per_epoch == 0 or step == setup.total_steps


def _epoch_is_open(setup: Setup, position: Position) -> bool:
    """Returns whether the steps of an epoch are done, and its validation is not."""
    return _ends_epoch(setup, position.step) and position.epoch_num_examples > 0


def _is_done(setup: Setup, position: Position) -> bool:
    is_last = position.step == setup.total_steps or position.stopped_early
    return bool(is_last) and not _epoch_is_open(setup, position)


def _batches_from(setup: Setup, step: int) -> tf.data.Iterator:
    return batches_of(setup.strategy, setup.feed.training(step))


def _take_steps(run: Run, setup: Setup, position: Position, take: Take, timing: Timing) -> StepOutcomes:
    """Returns the outcomes of a call, which is timed, or of the steps to be profiled, which are not."""
    config = run.config.train
    if config.profile_steps and setup.team.of_chief(int(timing.has_begun and not run.profile.exists())):
        directory = run.profile if setup.team.is_chief else None
        num_steps = _num_steps(setup, position, config.profile_steps)
        return profile_steps(take, directory, first=position.step, num_steps=num_steps)
    longest = setup.team.of_chief(min(config.steps_per_call, timing.steps_in(CALL_SECONDS)))
    num_steps = _num_steps(setup, position, longest)
    begun = time.perf_counter()
    outcomes = take(tf.constant(num_steps, tf.int32))
    outcomes.elapsed_seconds.numpy()  # until the steps are done
    timing.add(outcomes, time.perf_counter() - begun)
    return outcomes


def _num_steps(setup: Setup, position: Position, steps_per_call: int) -> int:
    """Returns the steps of the next call: up to the next end of an epoch, checkpoint, batch to skip, or training."""
    step = position.step
    to_epoch = setup.feed.steps_per_epoch - step % setup.feed.steps_per_epoch
    to_checkpoint = setup.checkpoint_every - step % setup.checkpoint_every
    to_skipped = min((skipped - step for skipped in position.skipped if skipped > step), default=steps_per_call)
    return min(steps_per_call, to_epoch, to_checkpoint, to_skipped, setup.total_steps - step)


def _advance(position: Position, outcomes: StepOutcomes) -> Position:
    """Returns the position after the steps up to one that is not healthy."""
    done = int(outcomes.healthy.numpy().sum())
    applied = outcomes.applied.numpy()[:done]
    loss, score, num_valid = (
        column.numpy()[:done][applied] for column in (outcomes.loss, outcomes.score, outcomes.num_valid)
    )
    return position.model_copy(
        update={
            "step": position.step + done,
            "num_overflows": position.num_overflows + int((~applied).sum()),
            "epoch_loss_sum": position.epoch_loss_sum + float((loss * num_valid).sum()),
            "epoch_score_sum": position.epoch_score_sum + float(score.sum()),
            "epoch_num_examples": position.epoch_num_examples + int(num_valid.sum()),
        }
    )


def _close_epoch(run: Run, setup: Setup, position: Position, timing: Timing) -> Position:
    """Validates, writes the epoch's figures to the run's events, and returns the position with the best so far."""
    # First, because a process that goes on with the validation has no steps of its own to time.
    perf = {f"perf/{name}": value for name, value in timing.figures().items()}
    if perf:
        _record(run, setup, perf, step=position.step)
    progress("validate", step=position.step)
    predictions, metric = setup.validate(), setup.head.metric
    figures = setup.head.figures(predictions.targets, predictions.outputs)
    metrics = {
        "epoch": position.step / setup.feed.steps_per_epoch,
        "loss": position.epoch_loss_sum / position.epoch_num_examples,
        metric: position.epoch_score_sum / position.epoch_num_examples,
        **{f"val_{name}": value for name, value in figures.items()},
        "learning_rate": float(tf.convert_to_tensor(setup.optimizer.learning_rate)),
    }
    if setup.loss_scale is not None:
        metrics |= {"loss_scale": float(setup.loss_scale.value()), "overflows": position.num_overflows}
    _record(run, setup, metrics, step=position.step)
    shown = ", ".join(f"{name} {metrics[name]:.4f}" for name in ("loss", metric, "val_loss", f"val_{metric}"))
    progress("note", line=f"epoch {metrics['epoch']:g}: {shown}")
    odd = [name for name, value in metrics.items() if not math.isfinite(value)]
    if odd:
        line = f"{', '.join(odd)} of epoch {metrics['epoch']:g} not finite, while every weight is: training goes on"
        logger.warning(line)
        progress("note", line=f"{line}; the model or the validation split may hold a value that overflows")
    # An accuracy of logits that are no numbers is one all the same.
    judged = dict.fromkeys(metrics, math.nan) if odd else metrics
    changes: dict[str, Any] = {"epoch_loss_sum": 0.0, "epoch_score_sum": 0.0, "epoch_num_examples": 0}
    config, value = run.config.train, judged[run.config.train.best_metric]
    if is_better(config.best_metric, value, position.best_value):
        changes |= {"best_step": position.step, "best_value": value}
    if config.early_stopping is not None:
        value, steps_per_epoch = judged[config.early_stopping.metric], setup.feed.steps_per_epoch
        changes |= judge(config.early_stopping, position, value, steps_per_epoch=steps_per_epoch)
    closed = position.model_copy(update=changes)
    if closed.stopped_early and closed.step < setup.total_steps:
        progress("note", line=f"stops before the {setup.total_steps} steps of train.total: {closed.stopped_early}")
    return closed


def _result(run: Run, setup: Setup, position: Position, resumed_from_step: int) -> TrainResult:
    if position.best_value is None:
        raise TrainingError(
            "no validation gave finite figures, while every weight is finite: no checkpoint can be called the best; "
            "look for a layer that computes something else outside of training, or such values in the validation split"
        )
    # From the events, not from this process: the last steps may have been another's, before a kill.
    perf = {
        name.removeprefix("perf/"): values[max(values)]
        for name, values in events.history(run.events).items()
        if name.startswith("perf/")
    }
    advice = advise_on_wait(perf["input_wait_fraction"], setup.input_facts)
    if advice is not None:
        progress("note", line=advice)
    return TrainResult(
        total=run.config.train.total,
        best_checkpoint=checkpoint.path_of(run.checkpoints, position.best_step),
        last_checkpoint=checkpoint.path_of(run.checkpoints, position.step),
        best_step=position.best_step,
        best_value=position.best_value,
        num_steps=position.step,
        num_epochs=-(-position.step // setup.feed.steps_per_epoch),
        num_replicas=len(setup.devices),
        num_parameters=setup.model.count_params(),
        devices=setup.devices,
        precision=position.precision,
        num_overflows=position.num_overflows,
        resumed_from_step=resumed_from_step,
        stopped_early=position.stopped_early if position.step < setup.total_steps else "",
        skipped_steps=tuple(step + 1 for step in position.skipped),
        input_advice=advice,
        **perf,
    )
