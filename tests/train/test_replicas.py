"""The number of replicas is not a hyperparameter."""

import numpy as np
import pytest

# 200 examples a batch: seven full batches and one of 37 an epoch, so that 20 steps hold two short ones.
EXACT = ("train.precision=float64", "train.total=20 steps", "feed.global_batch_size=200", "train.clip.limit=0.5")
CONSTANT = "train.optimizer.schedule.kind=constant"
SGD = (
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.args={momentum: 0.9}",
    CONSTANT,
)
ADAM = ("train.optimizer.name=adam", CONSTANT)


def replicas(count):
    return f"distribute.num_replicas={count}"


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_two_and_four_replicas_match_one_in_float64(trainer, optimizer):
    # Batch normalisation, dropout, clipping and short last batches are in it; the optimizer's state is compared too.
    one = trainer.weights(*EXACT, *optimizer, replicas(1))
    for count in (2, 4):
        assert largest_difference(one, trainer.weights(*EXACT, *optimizer, replicas(count))) <= 1e-9


def test_one_step_in_float32_differs_by_rounding_only(trainer):
    settings = (*SGD, "train.total=1 steps", "feed.global_batch_size=200", "train.clip.limit=0.5")
    one = trainer.weights(*settings, replicas(1))
    for count in (2, 4):
        assert largest_difference(one, trainer.weights(*settings, replicas(count))) <= 1e-6


def test_a_batch_smaller_than_the_replicas_is_exact_too(trainer):
    settings = (*SGD, "train.precision=float64", "train.total=3 steps", "feed.global_batch_size=3")
    one = trainer.weights(*settings, replicas(1))
    assert largest_difference(one, trainer.weights(*settings, replicas(4))) <= 1e-9


@pytest.mark.prove
def test_one_device_and_one_mirrored_replica_are_bit_equal(trainer):
    one = trainer.weights(*EXACT, *SGD, replicas(1))
    assert largest_difference(one, trainer.weights(*EXACT, *SGD, "distribute.kind=one_device")) == 0


def test_the_graph_sums_the_gradients_once(trainer):
    run = trainer.run("model.build=models_for_tests:dense", "model.args={}", "distribute.num_replicas=2")
    found = trainer.call("train_functions:count_reductions", run)
    assert found["sums"] == found["variables"] + 2, "each gradient once, the loss and the number correct"


def test_a_variable_that_the_loss_does_not_reach_keeps_its_value(trainer):
    weights = trainer.weights("model.build=models_for_tests:spare", "model.args={}", *SGD, "train.total=2 steps")
    (bias,) = [value for name, value in weights.items() if "(3,)" in name and "momentum" not in name]
    assert np.array_equal(bias, [0, 0, 0])


def test_how_gradients_are_summed_changes_no_weight(trainer):
    settings = ("model.build=models_for_tests:normalised", "model.args={}", *EXACT, *SGD, "train.total=3 steps")
    plain = trainer.weights(*settings, replicas(2))
    for sent in (("all_reduce=ring", "pack_size=1 KB"), ("all_reduce=hierarchical",)):
        found = trainer.weights(*settings, replicas(2), *(f"distribute.{field}" for field in sent))
        assert largest_difference(plain, found) <= 1e-12


@pytest.mark.prove
def test_gradients_that_cross_in_sixteen_bits_are_rounded_once(trainer):
    settings = ("model.build=models_for_tests:dense", "model.args={}", *SGD, "train.total=1 steps", replicas(2))
    exact, rounded = (trainer.weights(*settings, f"distribute.reduce_dtype={dtype}") for dtype in ("null", "bfloat16"))
    # A step is 0.05 times a gradient of less than 1, which has 8 bits left; two parts and their sum are rounded.
    assert 0 < largest_difference(exact, rounded) <= 3 * 2**-9
