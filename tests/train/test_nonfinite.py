"""A batch on which the model computes no number is left out, and everything else is as if it had never been."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks import events
from tasks.errors import TrainingError, WorkerError
from tasks.feed.feed import Feed
from tasks.files import atomic_directory, digest_file
from tasks.train.checkpoint import POSITION, VARIABLES, Position, completed, path_of
from tasks.train.stage import train

SHORT = ("train.total=3 epochs", "train.checkpoint_every=10 steps", "train.steps_per_call=8")
CONSTANT = "train.optimizer.schedule.kind=constant"
ROLLBACK = ("train.on_nonfinite=rollback", "train.keep_checkpoints=99")


def feed_of(trainer):
    shards, config = trainer.digits.shards, trainer.digits.config
    return Feed(shards.directory, shards.manifest(), "train", config.feed, seed=config.train.seed, num_replicas=1)


@pytest.fixture(scope="module")
def poison(trainer):
    """An example of the 15th batch, and the steps, from 0, of the three epochs in which it comes."""
    feed = feed_of(trainer)
    row = feed.order(0)[14 * feed.global_batch_size + 5]
    places = [int(np.flatnonzero(feed.order(epoch) == row)[0]) // feed.global_batch_size for epoch in range(3)]
    ids = np.concatenate([part["id"][part["mask"]] for part in feed.one_pass().as_numpy_iterator()])
    return int(ids[row]), tuple(epoch * feed.steps_per_epoch + place for epoch, place in enumerate(places))


def poisoned_run(trainer, poison, *overrides):
    model = ("model.build=faulty_models:poisoned", f"model.args={{id: {poison[0]}}}")
    return trainer.run(*SHORT, *ROLLBACK, *model, *overrides)


@pytest.fixture(scope="module")
def rolled_back(trainer, poison):
    run = poisoned_run(trainer, poison)
    return run, train(run, trainer.digits.shards)


def weights(result):
    return digest_file(result.last_checkpoint / VARIABLES)


def test_the_batch_is_skipped_in_each_epoch_and_that_is_said(trainer, poison, rolled_back):
    run, result = rolled_back
    _, steps = poison
    assert steps[0] == 14
    assert len(steps) == 3
    assert result.skipped_steps == tuple(step + 1 for step in steps)
    assert (result.num_steps, result.num_epochs) == (69, 3)
    assert events.history(run.events)["rollbacks"] == {step: number for number, step in enumerate(steps, start=1)}
    ids = ", ".join(map(str, feed_of(trainer).ids(14)[:8]))
    assert (
        f"step 15 of 69 (epoch 1, batch 15) on its 64 examples (ids {ids}, ...): loss or gradient is not finite; back "
        "to step 10, to go on without them (rollback 1 of 3)\n"
    ) in (run.logs / "train.log").read_text()
    for saved in completed(run.checkpoints):
        assert all(abs(array).max() < 1e6 for array in load_file(saved / VARIABLES).values()), "finite"


def test_it_ends_bit_equal_to_a_training_that_never_saw_the_batches(trainer, poison, rolled_back):
    run = trainer.run(*SHORT, *ROLLBACK, "model.build=models_for_tests:dense", "model.args={}")
    start = path_of(rolled_back[0].checkpoints, 0)
    with atomic_directory(path_of(run.checkpoints, 0)) as incomplete:
        (incomplete / VARIABLES).write_bytes((start / VARIABLES).read_bytes())
        Position(skipped=poison[1]).write(incomplete / POSITION)
    result = train(run, trainer.digits.shards)
    assert "rollbacks" not in events.history(run.events)
    assert result.skipped_steps == rolled_back[1].skipped_steps
    assert weights(result) == weights(rolled_back[1])
    history, expected = events.history(run.events), events.history(rolled_back[0].events)
    for metric in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert history[metric] == expected[metric]


@pytest.mark.prove
@pytest.mark.parametrize("step", [10, 20])
def test_killed_before_or_after_it_is_skipped_it_ends_bit_equal_on_another_number_of_replicas_too(
    trainer, poison, rolled_back, step
):
    run = poisoned_run(trainer, poison)
    with pytest.raises(WorkerError, match="SIGKILL"):
        trainer.call("train_functions:train_and_die", run, step=step)
    saved = {int(path.name): Position.read(path / POSITION).skipped for path in completed(run.checkpoints)}
    assert saved[10] == ()
    assert saved.get(20, (14,)) == (14,), "remembered in the checkpoint"
    if step == 20:
        one = train(trainer.digits.same_run(run, "distribute.num_replicas=1"), trainer.digits.shards)
        assert one.skipped_steps == rolled_back[1].skipped_steps
        return
    result = train(run, trainer.digits.shards)
    assert result.skipped_steps == rolled_back[1].skipped_steps
    assert weights(result) == weights(rolled_back[1])


@pytest.mark.prove
def test_over_the_limit_it_stops_and_with_a_higher_one_the_same_run_goes_on(trainer, poison, rolled_back):
    run = poisoned_run(trainer, poison, "train.max_rollbacks=1")
    with pytest.raises(TrainingError, match=r"train.max_rollbacks=1 is used up \(steps skipped: 15\); nothing of it"):
        train(run, trainer.digits.shards)
    result = train(trainer.digits.same_run(run, "train.max_rollbacks=3"), trainer.digits.shards)
    assert result.resumed_from_step >= 23
    assert weights(result) == weights(rolled_back[1])


def test_figures_that_are_no_numbers_while_the_weights_are_finite_are_told_apart(trainer):
    run = trainer.run(
        *SHORT, "model.build=faulty_models:only_trained", "model.args={}", "train.total=1 epochs", CONSTANT
    )
    with pytest.raises(TrainingError, match="no validation gave finite figures, while every weight is finite"):
        train(run, trainer.digits.shards)
    log = (run.logs / "train.log").read_text()
    assert re.search(r"val_loss of epoch 1 not finite, while every weight is: training goes on", log)
    assert [int(path.name) for path in completed(run.checkpoints)] == [20, 23], "good to train on from"
    assert "NaN" in json.dumps(events.history(run.events)["val_loss"])
