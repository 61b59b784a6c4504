"""Averages of the weights: exact, the same on any number of replicas, and evaluated in their place if asked."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks import events
from tasks.errors import WorkerError
from tasks.evaluate.stage import evaluate
from tasks.export.stage import export
from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES, completed
from tasks.train.stage import train

MODEL = ("model.build=models_for_tests:normalised", "model.args={}")
EVALUATED = ("train.ema={momentum: 0.9, evaluate: true}", "evaluate.split=validation")
SHORT = (
    *MODEL,
    "train.total=2 epochs",
    "train.optimizer.schedule.warmup=1 epochs",
    "train.checkpoint_every=10 steps",
    "train.best_metric=val_loss",
)
# The fourth batch is short.
FIVE = (
    *MODEL,
    "train.ema={momentum: 0.9}",
    "train.optimizer={name: sgd, learning_rate: 0.05, schedule: {kind: constant}, args: {momentum: 0.9}}",
    "train.precision=float64",
    "feed.global_batch_size=360",
    "train.total=5 steps",
    "train.checkpoint_every=1 steps",
    "train.keep_checkpoints=9",
)


def split(arrays):
    """Returns the averages, and the weights and statistics in the same order, of a checkpoint's arrays."""
    averages = [arrays[key] for key in sorted(arrays) if " ema_" in key]
    values = [arrays[key] for key in sorted(arrays)]
    assert averages
    return averages, values[: len(averages)]


@pytest.fixture(scope="module")
def five_steps(trainer):
    """Returns the arrays after each of five steps, by the number of replicas."""

    def train_on(num_replicas):
        run = trainer.run(*FIVE, f"distribute.num_replicas={num_replicas}")
        trainer.train(run)
        return [load_file(checkpoint / VARIABLES) for checkpoint in completed(run.checkpoints)]

    return {num_replicas: train_on(num_replicas) for num_replicas in (1, 2)}


def test_an_average_is_that_of_the_weights_and_statistics_after_each_step(five_steps):
    steps = [split(arrays) for arrays in five_steps[2]]
    assert len(steps) == 5
    assert sum("moving_" in key for key in five_steps[2][0] if " ema_" in key) == 2
    expected = steps[0][1]
    for averages, weights in steps:
        expected = [0.9 * old + 0.1 * new for old, new in zip(expected, weights, strict=True)]
        for average, value in zip(averages, expected, strict=True):
            np.testing.assert_allclose(average, value, rtol=1e-12, atol=1e-15)


def test_two_replicas_match_one_in_float64(five_steps):
    one, two = five_steps[1][-1], five_steps[2][-1]
    assert one.keys() == two.keys()
    assert max(float(np.abs(one[name] - two[name]).max()) for name in one) <= 1e-9


@pytest.fixture(scope="module")
def unbroken(trainer):
    run = trainer.run(*SHORT, *EVALUATED)
    return run, train(run, trainer.digits.shards)


@pytest.mark.prove
def test_a_killed_run_ends_bit_equal(trainer, unbroken):
    run = trainer.run(*SHORT, *EVALUATED)
    with pytest.raises(WorkerError, match="SIGKILL"):
        trainer.call("train_functions:train_and_die", run, step=30)
    ended = train(run, trainer.digits.shards)
    assert ended.resumed_from_step >= 30
    assert digest_file(ended.last_checkpoint / VARIABLES) == digest_file(unbroken[1].last_checkpoint / VARIABLES)
    assert events.history(run.events)["val_loss"] == events.history(unbroken[0].events)["val_loss"]


def test_training_does_not_see_the_averages_but_validation_does(trainer, unbroken):
    other = trainer.run(*SHORT)
    without = load_file(train(other, trainer.digits.shards).last_checkpoint / VARIABLES)
    with_them = load_file(unbroken[1].last_checkpoint / VARIABLES)
    values = [with_them[key] for key in sorted(with_them) if " ema_" not in key]
    for left, right in zip(values, (without[key] for key in sorted(without)), strict=True):
        assert np.array_equal(left, right)
    assert events.history(other.events)["loss"] == events.history(unbroken[0].events)["loss"]
    assert events.history(other.events)["val_loss"] != events.history(unbroken[0].events)["val_loss"]


def test_what_is_validated_is_evaluated_and_exported(trainer, unbroken):
    run, trained = unbroken
    report = evaluate(run, trainer.digits.shards, trained)
    assert report.figures["loss"] == pytest.approx(trained.best_value, rel=1e-6)
    assert export(run, trainer.digits.shards, trained, report).largest_difference < 1e-5
