"""A model of Keras's own layers gives the same weights on any number of replicas, or it is said which does not."""

from functools import cache

import numpy as np
import pytest

from tasks.errors import ConfigError

# 500 examples a batch: the third step of an epoch has 437, which two and four replicas pad.
EXACT = (
    "train.precision=float64",
    "train.total=4 steps",
    "feed.global_batch_size=500",
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.args={momentum: 0.9}",
    "train.optimizer.schedule.kind=constant",
    "model.args={}",
)


def largest_difference(left, right):
    # The seeds that stock layers keep are not drawn from.
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left if "seed" not in name)


@pytest.fixture(scope="module")
def weights(trainer):
    """weights(model, num_replicas), of a training that is done once."""

    @cache
    def of(model, num_replicas):
        settings = (f"model.build=stock_models:{model}", "train.invariance=require")
        return trainer.weights(*EXACT, *settings, f"distribute.num_replicas={num_replicas}")

    return of


@pytest.mark.parametrize(
    ("model", "num_replicas"),
    [
        ("image", 2),
        pytest.param("image", 4, marks=pytest.mark.prove),
        pytest.param("sequence", 2, marks=pytest.mark.prove),
    ],
)
def test_stock_layers_give_the_same_weights_on_any_number_of_replicas(weights, model, num_replicas):
    assert largest_difference(weights(model, 1), weights(model, num_replicas)) <= 1e-9


@pytest.mark.prove
def test_a_layer_that_cannot_be_patched_is_refused_on_request_and_else_named(trainer):
    flipped = (*EXACT, "model.build=stock_models:flipped", "train.total=1 steps")
    with pytest.raises(ConfigError, match=r"train.invariance=require: .* random_flip \(RandomFlip\): it draws random"):
        trainer.train(trainer.run(*flipped, "train.invariance=require"))
    run = trainer.run(*flipped)
    trainer.train(run)
    said = [line for line in (run.logs / "train.log").read_text().splitlines() if "depends on the number" in line]
    assert len(said) == 1
    assert "depends on the number of replicas for model layer random_flip" in said[0]


@pytest.mark.prove
def test_random_numbers_of_tensorflows_own_are_found_when_the_step_is_traced(trainer):
    noisy = trainer.run(*EXACT, "model.build=stock_models:noisy", "train.total=1 steps", "train.invariance=require")
    with pytest.raises(ConfigError, match=r"^train.invar.*: while/functional\w*/mine\w*/\S+: it draws random numbers"):
        trainer.train(noisy)
