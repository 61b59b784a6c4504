"""A global batch may be taken piece by piece: the gradients are summed, and it is one step."""

import numpy as np
import pytest

from tasks.errors import ConfigError

# 200 examples a batch: seven full batches and one of 37 an epoch, so that 30 steps hold three short ones.
EXACT = (
    "train.precision=float64",
    "train.total=30 steps",
    "feed.global_batch_size=200",
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.args={momentum: 0.9}",
    "train.optimizer.schedule.kind=constant",
)
PENALISED = ("model.build=models_for_tests:penalised", "model.args={}")
NORMALISED = ("model.args={width: 4, largest_value: 16}",)


def pieces(num_replicas, microbatch):
    return (f"distribute.num_replicas={num_replicas}", f"train.microbatch={microbatch}")


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def test_microbatches_give_the_weights_of_the_whole_batch(trainer):
    # Dropout, penalties and short batches, in which some microbatches are empty; 64 does not divide 200.
    whole = trainer.weights(*EXACT, *PENALISED, *pieces(1, "null"))
    assert largest_difference(whole, trainer.weights(*EXACT, *PENALISED, *pieces(2, 32))) <= 1e-9


@pytest.mark.prove
@pytest.mark.parametrize(("num_replicas", "microbatch"), [(1, 17), (4, 1000)])
def test_microbatches_of_any_size_give_them(trainer, num_replicas, microbatch):
    whole = trainer.weights(*EXACT, *PENALISED, *pieces(2, "null"))
    cut = trainer.weights(*EXACT, *PENALISED, *pieces(num_replicas, microbatch))
    assert largest_difference(whole, cut) <= 1e-9


@pytest.mark.prove
def test_with_batch_normalisation_they_are_the_same_on_any_number_of_replicas(trainer):
    settings = (*EXACT, "train.total=9 steps", *NORMALISED)  # the eighth is short
    one = trainer.weights(*settings, *pieces(1, 64))
    for num_replicas in (2, 4):
        other = trainer.weights(*settings, *pieces(num_replicas, 64 // num_replicas))
        assert largest_difference(one, other) <= 1e-9
    whole = trainer.weights(*settings, *pieces(1, "null"))
    assert largest_difference(one, whole) > 1e-4, "but not those of the whole batch: the statistics are others"


@pytest.mark.prove
def test_a_training_with_batch_normalisation_holds_to_its_microbatches(trainer):
    constant = (*EXACT, "train.total=1 steps", *NORMALISED)
    run = trainer.run(*constant, *pieces(1, 32))
    trainer.train(run)
    log = (run.logs / "train.log").read_text()
    assert "the model normalises over the 32 examples that 1 replica(s) take at once, not over the 200 of a" in log
    other = trainer.digits.same_run(run, "train.total=2 steps", *pieces(2, 32))
    with pytest.raises(ConfigError) as error:
        trainer.train(other)
    assert str(error.value) == (
        "train.microbatch: the model normalises over the examples that are taken at once, 64 of a global batch on 2 "
        "replica(s), and until step 1 it did over 32, which gives other weights; go on with train.microbatch=16, or "
        "begin a new run with --fresh"
    )
    assert trainer.train(trainer.digits.same_run(other, *pieces(2, 16)))["resumed_from_step"] == 1


@pytest.mark.prove
def test_without_batch_statistics_a_run_goes_on_with_others_and_sums_once_a_step(trainer):
    run = trainer.run(
        *EXACT, "model.build=models_for_tests:dense", "model.args={}", "train.total=1 steps", *pieces(2, "null")
    )
    trainer.train(run)
    other = trainer.digits.same_run(run, "train.total=2 steps", *pieces(2, 32))
    assert trainer.train(other)["resumed_from_step"] == 1
    found = trainer.call("train_functions:count_reductions", other)
    assert found["sums"] == found["variables"] + 2, "each gradient once, however many microbatches"
