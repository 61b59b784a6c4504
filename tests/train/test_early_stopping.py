"""A training that does not get better ends before its total, wherever it was interrupted."""

import math
from pathlib import Path

import pytest

from tasks import events
from tasks.errors import WorkerError
from tasks.evaluate.stage import evaluate
from tasks.files import digest_file
from tasks.optimization import EarlyStopping
from tasks.train.checkpoint import VARIABLES, Position
from tasks.train.early_stopping import is_better, judge
from tasks.train.stage import train

# No loss of the digits falls by ten: the first validation is bettered by none, and the third epoch of ten is the last.
STOPPING = (
    "train.total=10 epochs",
    "train.checkpoint_every=10 steps",
    "train.optimizer.schedule.kind=constant",
    "train.early_stopping={metric: val_loss, patience: 2, min_delta: 10}",
    "model.build=models_for_tests:dense",
    "model.args={}",
)


def epochs_until_stopped(values, **settings):
    """Returns the epoch after which a training with these values of the metric stops, and why; None: it does not."""
    position = Position()
    for epoch, value in enumerate(values, 1):
        position = position.model_copy(update={"step": 7 * epoch})
        position = position.model_copy(update=judge(EarlyStopping(**settings), position, value, steps_per_epoch=7))
        if position.stopped_early:
            return epoch, position.stopped_early
    return None


@pytest.mark.parametrize(
    ("metric", "value", "than", "by", "better"),
    [
        ("val_loss", 0.5, None, 0, True),
        ("val_loss", 0.5, 0.5, 0, False),
        ("val_loss", 0.4, 0.5, 0, True),
        ("val_loss", 0.375, 0.5, 0.125, False),
        ("val_accuracy", 0.4, 0.5, 0, False),
        ("val_accuracy", 0.75, 0.5, 0.125, True),
        ("val_accuracy", math.nan, None, 0, False),
        ("val_loss", math.nan, 0.5, 0, False),
        ("val_loss", -math.inf, 0.5, 0, False),
        ("val_accuracy", math.inf, 0.5, 0, False),
    ],
)
def test_better_is_higher_lower_for_a_loss_and_never_what_is_no_number(metric, value, than, by, better):
    assert is_better(metric, value, than, by=by) is better


@pytest.mark.parametrize(
    ("values", "settings", "epoch"),
    [
        ([3, 2, 1, 0.5], {"patience": 1}, None),
        ([3, 2, 2], {"patience": 1}, 3),
        ([3, 2, 2.5, 1, 4, 5], {"patience": 2}, 6),
        ([3, 2.5, 2, 1.5], {"patience": 2, "min_delta": 0.5}, None),
        ([3, 2.5, 2.5, 1.5], {"patience": 2, "min_delta": 0.5}, 3),
        ([0.5, 0.6, 0.6], {"patience": 1, "metric": "val_accuracy"}, 3),
        ([3, math.nan, 2, math.nan, math.nan], {"patience": 2}, 5),
        ([math.nan, math.nan, 1], {"patience": 2}, 2),
        ([math.nan, 1, 2], {"patience": 2}, None),
    ],
)
def test_it_stops_after_so_many_epochs_without_an_improvement(values, settings, epoch):
    found = epochs_until_stopped(values, **settings)
    assert (found and found[0]) == epoch


def test_it_says_why():
    assert epochs_until_stopped([3, 2, 2], patience=1) == (
        3,
        "val_loss: 2 of epoch 2 was not bettered by more than 0 in 1 epoch(s), up to epoch 3",
    )
    assert epochs_until_stopped([math.nan], patience=1) == (
        1,
        "val_loss: there was no finite value in 1 epoch(s), up to epoch 1",
    )


@pytest.mark.prove
def test_a_run_stops_at_the_same_epoch_when_it_was_killed_before_and_is_evaluated(trainer):
    shards = trainer.digits.shards
    whole = train(trainer.run(*STOPPING), shards)
    assert whole.num_steps == 69
    assert whole.stopped_early.startswith("val_loss: ")
    assert whole.stopped_early.endswith("of epoch 1 was not bettered by more than 10 in 2 epoch(s), up to epoch 3")

    run = trainer.run(*STOPPING)
    with pytest.raises(WorkerError, match="SIGKILL"):
        trainer.call("train_functions:train_and_die", run, step=30)
    ended = train(run, shards)
    assert (ended.num_steps, ended.stopped_early) == (whole.num_steps, whole.stopped_early)
    assert digest_file(ended.last_checkpoint / VARIABLES) == digest_file(whole.last_checkpoint / VARIABLES)
    assert sorted(events.history(run.events)["val_loss"]) == [23, 46, 69]

    assert train(run, shards) == ended, "finished: it is not trained again"
    assert Path(evaluate(run, shards, ended).checkpoint) == ended.best_checkpoint


@pytest.mark.prove
def test_a_run_killed_with_its_last_checkpoint_is_finished(trainer):
    run = trainer.run(*STOPPING)
    with pytest.raises(WorkerError, match="SIGKILL"):  # before its result is written
        trainer.call("train_functions:train_and_die", run, step=69)
    ended = train(run, trainer.digits.shards)
    assert (ended.num_steps, ended.resumed_from_step) == (69, 69)
    assert ended.stopped_early.endswith("up to epoch 3")


@pytest.mark.prove
def test_a_run_whose_patience_ends_with_its_total_was_not_stopped_early(trainer):
    result = train(trainer.run(*STOPPING, "train.total=3 epochs"), trainer.digits.shards)
    assert (result.num_steps, result.stopped_early) == (69, "")
