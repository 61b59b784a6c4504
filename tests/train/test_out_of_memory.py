"""What does not fit into memory at once is taken in pieces: found by trying, or in the middle of a training."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks.errors import ConfigError, WorkerLost
from tasks.train.checkpoint import VARIABLES
from tasks.train.microbatch import find_largest, microbatch_of
from tasks.train.stage import train

EXACT = (
    "train.precision=float64",
    "train.total=12 steps",
    "train.checkpoint_every=4 steps",
    "feed.global_batch_size=200",
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.schedule.kind=constant",
    "distribute.num_replicas=2",
    "model.build=faulty_models:greedy",
)


def weights(result):
    return load_file(result.last_checkpoint / VARIABLES)


def largest_difference(left, right):
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def whole(trainer):
    """The weights of a training that has memory for all."""
    return weights(train(trainer.run(*EXACT, "model.args={limit: 1000}"), trainer.digits.shards))


def test_running_out_in_mid_training_halves_the_microbatch_and_changes_no_weight(trainer, whole, caplog):
    run = trainer.run(*EXACT, "model.args={limit: 40, from_step: 6}")
    result = train(run, trainer.digits.shards)
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition("; ")[2] for line in said] == [
        "goes on with 50, from the last checkpoint",
        "goes on with 25, from the last checkpoint",
    ]
    assert microbatch_of(run) == 25
    assert result.resumed_from_step == 4
    assert largest_difference(whole, weights(result)) <= 1e-9


@pytest.mark.prove
def test_auto_is_the_largest_that_fits_and_is_found_once(trainer, whole):
    run = trainer.run(*EXACT, "model.args={limit: 30}", "train.microbatch=auto")
    result = train(run, trainer.digits.shards)
    assert microbatch_of(run) == 25, "of 100, 50, 25, ..."
    assert largest_difference(whole, weights(result)) <= 1e-9


def test_with_batch_normalisation_it_stops_unless_that_is_allowed(trainer):
    args = "model.args={limit: 60, from_step: 6, normalised: true}"
    run = trainer.run(*EXACT, args)
    with pytest.raises(
        ConfigError, match=r"^train.microbatch=100: 100 examples at once do not fit .* to take 50 would"
    ):
        train(run, trainer.digits.shards)
    allowed = trainer.digits.same_run(run, "train.allow_bn_change=true")
    assert train(allowed, trainer.digits.shards).num_steps == 12
    assert microbatch_of(run) == 50


def test_the_largest_is_found_by_bisection_also_past_attempts_that_are_killed():
    tried = []

    def attempt(rows):
        tried.append(rows)
        if rows is None or rows > 100:
            raise WorkerLost("was killed by SIGKILL")
        return {"fits": rows <= 9, "slice_rows": 128}

    assert find_largest(attempt) == 8
    assert tried == [None, 1, 8, 32, 16]


def test_an_attempt_that_is_lost_for_another_reason_is_no_want_of_memory():
    def attempt(rows):
        raise WorkerLost("made no progress for 300 s")

    with pytest.raises(WorkerLost, match=r"^made no progress for 300 s$"):
        find_largest(attempt)


def test_what_never_fits_is_refused():
    with pytest.raises(ConfigError, match=r"^train.microbatch=auto: not even one example at a time fits"):
        find_largest(lambda rows: {"fits": False, "slice_rows": 6})
