"""A training that was interrupted ends like one that was not."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks import events
from tasks.errors import DataError, TrainingError, WorkerError
from tasks.feed.feed import Feed
from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES, completed
from tasks.train.result import TrainResult
from tasks.train.stage import RESULT, train

# 23 steps an epoch: checkpoints at 10, 20, 23, 30, 40, 46, ... of which 30 lies in the middle of an epoch.
SHORT = ("train.total=3 epochs", "train.checkpoint_every=10 steps", "train.steps_per_call=8")
SGD = (
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.01",
    "train.optimizer.schedule.kind=constant",
    "train.clip=null",
)


def last_digest(result):
    return digest_file(Path(result["last_checkpoint"]) / "variables.safetensors")


@pytest.fixture(scope="module")
def unbroken(trainer):
    run = trainer.run(*SHORT)
    return run, trainer.train(run)


def test_a_run_killed_in_mid_epoch_whose_newest_checkpoint_is_damaged_says_so_and_ends_bit_equal(trainer, unbroken):
    run = trainer.run(*SHORT, "train.keep_checkpoints=9")
    with pytest.raises(WorkerError, match="SIGKILL"):
        trainer.call("train_functions:train_and_die", run, step=40)
    previous, newest = completed(run.checkpoints)[-2:]
    (newest / VARIABLES).write_bytes(b"")
    result = trainer.train(run)
    assert result["resumed_from_step"] == int(previous.name) >= 30
    assert f"{newest}/{VARIABLES}: has 0 bytes" in (run.logs / "train.log").read_text()
    assert last_digest(result) == last_digest(unbroken[1])
    assert result["best_step"] == unbroken[1]["best_step"]
    history, expected = events.history(run.events), events.history(unbroken[0].events)
    for metric in ("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"):
        assert history[metric] == expected[metric]


def test_a_finished_run_goes_on_to_a_longer_total_as_if_begun_with_it(trainer):
    constant = (*SHORT, *SGD, "model.build=models_for_tests:dense", "model.args={}", "train.total=50 steps")
    whole = train(trainer.run(*constant, "train.total=69 steps"), trainer.digits.shards)

    run = trainer.run(*constant)  # it ends in the middle of the third epoch
    first = train(run, trainer.digits.shards)
    assert train(run, trainer.digits.shards) == first, "not trained again"
    again = trainer.digits.same_run(run, "train.total=69 steps")
    second = train(again, trainer.digits.shards)
    assert (second.resumed_from_step, second.num_steps) == (50, 69)
    assert digest_file(second.last_checkpoint / VARIABLES) == digest_file(whole.last_checkpoint / VARIABLES)
    assert list(events.history(run.events)["val_loss"]) == [23, 46, 50, 69]
    assert train(again, trainer.digits.shards) == second


@pytest.mark.prove
def test_other_calls_and_checkpoints_and_reading_from_files_instead_of_memory_change_nothing(trainer, unbroken):
    other = ("train.checkpoint_every=7 steps", "train.steps_per_call=5", "feed.cache=none")
    assert last_digest(trainer.train(trainer.run(*SHORT, *other))) == last_digest(unbroken[1])


def test_a_run_that_lost_its_best_checkpoint_asks_for_a_new_one(trainer, unbroken):
    run = trainer.run(*SHORT)
    lost = run.checkpoints / "00000069"
    TrainResult.model_validate({**unbroken[1], "best_checkpoint": lost}).write(run.directory / RESULT)
    with pytest.raises(DataError, match=rf"its best checkpoint is lost \({lost}: has no .*\); begin a new run with"):
        train(run, trainer.digits.shards)


@pytest.mark.parametrize("other", [["train.optimizer.name=sgd"], ["model.args={width: 16, largest_value: 16}"]])
def test_a_checkpoint_of_another_optimizer_or_model_is_refused_not_half_loaded(trainer, unbroken, other):
    run = trainer.run(*SHORT, *other)
    run.checkpoints.symlink_to(unbroken[0].checkpoints)
    with pytest.raises(TrainingError, match="the model or the optimizer was changed"):
        trainer.train(run)


def test_a_step_that_is_not_finite_stops_the_run_by_name_and_ids_and_saves_nothing_of_it(trainer):
    run = trainer.run(*SHORT, *SGD, "model.build=models_for_tests:fading", "model.args={}")
    with pytest.raises(TrainingError) as error:
        trainer.train(run)
    shards = trainer.digits.shards
    feed = Feed(shards.directory, shards.manifest(), "train", run.config.feed, seed=0, num_replicas=1)
    assert str(error.value) == (
        "step 15 of 69 (epoch 1, batch 15) on its 64 examples "
        f"(ids {', '.join(map(str, feed.ids(14)[:8]))}, ...): loss or gradient is not finite; nothing of it was saved "
        "and the last checkpoint stays; look at these examples, try a lower train.optimizer.learning_rate or "
        "train.clip.limit=1.0, or go on without them: train.on_nonfinite=rollback"
    )
    (saved,) = completed(run.checkpoints)
    assert saved.name == "00000010"
    assert all(np.isfinite(array).all() for array in load_file(saved / VARIABLES).values())
