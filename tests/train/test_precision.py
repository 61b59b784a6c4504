"""Training in mixed precision: what is chosen, what an overflow does, and that it learns."""

import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tasks import events
from tasks.errors import TrainingError, WorkerError
from tasks.evaluate.stage import evaluate
from tasks.export.stage import export
from tasks.feed.feed import Feed
from tasks.files import atomic_directory, digest_file
from tasks.train.checkpoint import POSITION, VARIABLES, Position, path_of
from tasks.train.loss_scale import LossScale
from tasks.train.precision import resolve_precision
from tasks.train.stage import train

# 23 steps an epoch; checkpoints at 10, 20, 23, 30, 40 and 46.
SHORT = (
    "train.total=2 epochs",
    "train.checkpoint_every=10 steps",
    "train.steps_per_call=8",
    "train.keep_checkpoints=9",
)
CONSTANT = "train.optimizer.schedule.kind=constant"
SGD = ("train.optimizer.name=sgd", "train.optimizer.learning_rate=0.1", CONSTANT)
FLOAT16 = "train.precision=mixed_float16"
ROUNDING = 2**-11  # of a float16 between 1/2 and 1: half of its last bit


@pytest.mark.parametrize(
    ("requested", "capabilities", "expected"),
    [
        ("auto", [], "float32"),
        ("auto", [(0, 0)], "float32"),
        ("auto", [(6, 1)], "float32"),
        ("auto", [(7, 0)], "mixed_float16"),
        ("auto", [(7, 5), (7, 5)], "mixed_float16"),
        ("auto", [(8, 0)], "mixed_bfloat16"),
        ("auto", [(12, 0), (10, 0)], "mixed_bfloat16"),
        ("auto", [(9, 0), (7, 0)], "mixed_float16"),
        ("auto", [(9, 0), (6, 0)], "float32"),
        ("float64", [(9, 0)], "float64"),
        ("mixed_float16", [], "mixed_float16"),
    ],
)
def test_auto_is_what_the_weakest_device_is_fast_in(requested, capabilities, expected):
    assert resolve_precision(requested, capabilities) == expected


def test_the_loss_scale_is_halved_by_an_overflow_and_doubled_after_good_steps():
    scale = LossScale(good_steps_to_double=3)
    values = []
    for finite in (True, True, False, True, True, True, True, False, True, True, True):
        scale.update(tf.constant(finite))
        values.append(float(scale.value()) / 2**15)
    assert values == [1, 1, 0.5, 0.5, 0.5, 1, 1, 0.5, 0.5, 0.5, 1]
    for _ in range(20):
        scale.update(tf.constant(False))
    assert float(scale.value()) == 1
    for _ in range(99):
        scale.update(tf.constant(True))
    assert float(scale.value()) == 2**24


@pytest.fixture(scope="module")
def poison(trainer):
    """An example of the 15th batch, and the steps, from 0, of the two epochs in which it comes."""
    shards, config = trainer.digits.shards, trainer.digits.config
    feed = Feed(shards.directory, shards.manifest(), "train", config.feed, seed=config.train.seed, num_replicas=1)
    id = int(feed.ids(14)[5])
    return id, tuple(step for step in range(46) if id in feed.ids(step))


def poisoned(poison, *overrides, normalised=True):
    args = f"model.args={{id: {poison[0]}, normalised: {str(normalised).lower()}}}"
    return (*SHORT, *SGD, FLOAT16, "model.build=faulty_models:poisoned", args, *overrides)


@pytest.fixture(scope="module")
def overflowed(trainer, poison):
    """A run on two replicas, on one of which the same example overflows once an epoch."""
    run = trainer.run(*poisoned(poison), "distribute.num_replicas=2")
    return run, train(run, trainer.digits.shards)


def last(result):
    return load_file(result.last_checkpoint / VARIABLES)


@pytest.mark.prove
def test_an_overflow_on_one_replica_skips_the_step_everywhere_and_halves_the_scale(trainer, poison, overflowed):
    run, result = overflowed
    assert len(poison[1]) == 2
    assert (result.num_steps, result.num_overflows, result.skipped_steps) == (46, 2, ())
    history = events.history(run.events)
    assert history["overflows"] == {23: 1, 46: 2}
    assert history["loss_scale"] == {23: 2.0**14, 46: 2.0**13}
    assert all(np.isfinite(history["loss"][step]) for step in (23, 46))
    weights = last(result)
    assert all(np.isfinite(array).all() for array in weights.values()), "the statistics of a skipped step are restored"
    (iterations,) = (array for name, array in weights.items() if "iteration" in name)
    assert iterations == 44, "an update less for each"


@pytest.mark.prove
def test_one_replica_skips_the_same_steps(trainer, poison, overflowed):
    one = train(trainer.run(*poisoned(poison), "distribute.num_replicas=1"), trainer.digits.shards)
    assert one.num_overflows == 2
    two, one = last(overflowed[1]), last(one)
    assert one.keys() == two.keys()
    for name in (name for name in one if one[name].ndim == 0):  # updates, steps since the last overflow, loss scale
        assert one[name] == two[name]
    # In 16 bits the order of a sum shows, another one on each kind of CPU: a rounding a step, of numbers up to 1.
    assert max(float(np.abs(one[name] - two[name]).max()) for name in one) <= 46 * ROUNDING


@pytest.mark.prove
def test_killed_after_an_overflow_a_run_ends_bit_equal(trainer, poison, overflowed):
    run = trainer.run(*poisoned(poison), "distribute.num_replicas=2")
    with pytest.raises(WorkerError, match="SIGKILL"):
        trainer.call("train_functions:train_and_die", run, step=20)
    result = train(run, trainer.digits.shards)
    assert 20 <= result.resumed_from_step < 46
    assert result.num_overflows == 2
    assert digest_file(result.last_checkpoint / VARIABLES) == digest_file(overflowed[1].last_checkpoint / VARIABLES)


@pytest.mark.prove
def test_auto_is_float32_on_a_cpu_and_goes_on_in_what_it_was_begun_in(trainer, caplog):
    settings = (
        *SHORT,
        "train.total=1 steps",
        "train.on_nonfinite=rollback",
        "train.precision=auto",
        "model.args.width=4",
    )
    run = trainer.run(*settings, CONSTANT)
    with caplog.at_level(logging.INFO, "millstream"):
        assert train(run, trainer.digits.shards).precision == "float32"
    assert "train.precision: auto is float32 on a CPU" in caplog.text
    start = path_of(run.checkpoints, 0)

    begun = trainer.run(*settings, CONSTANT)  # as if on GPUs
    with atomic_directory(path_of(begun.checkpoints, 0)) as incomplete:
        (incomplete / VARIABLES).write_bytes((start / VARIABLES).read_bytes())
        Position(precision="mixed_bfloat16").write(incomplete / POSITION)
    assert train(begun, trainer.digits.shards).precision == "mixed_bfloat16"


@pytest.mark.prove
def test_what_is_no_number_at_any_scale_stops_the_run(trainer):
    run = trainer.run(*SHORT, *SGD, FLOAT16, "model.build=faulty_models:no_number", "model.args={}")
    with pytest.raises(
        TrainingError, match=r"^step 16 of 46 .*: loss or gradient, with the loss scale at its smallest,"
    ):
        train(run, trainer.digits.shards)


@pytest.mark.prove
@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_the_digits_are_learned_and_served_in_float32(trainer, precision):
    run = trainer.run(
        "train.total=5 epochs",
        "train.optimizer.schedule.warmup=1 epochs",
        "model.args.width=16",
        f"train.precision={precision}",
    )
    shards = trainer.digits.shards
    result = train(run, shards)
    assert result.precision == precision
    dtypes = {str(array.dtype) for array in load_file(Path(result.best_checkpoint) / VARIABLES).values()}
    assert not dtypes & {"float16", "bfloat16"}
    report = evaluate(run, shards, result)
    assert report.figures["accuracy"] >= 0.95
    assert export(run, shards, result, report).largest_difference <= 1e-5
