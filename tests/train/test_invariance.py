"""A model of Keras's own layers gives the same weights on any number of replicas, or it is said which does not."""

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


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ("image", (2,)),
        pytest.param("image", (4,), marks=pytest.mark.prove),
        pytest.param("sequence", (2, 4), marks=pytest.mark.prove),
    ],
)
def test_stock_layers_give_the_same_weights_on_any_number_of_replicas(trainer, model, counts):
    settings = (*EXACT, f"model.build=stock_models:{model}", "train.invariance=require")
    one = trainer.weights(*settings, "distribute.num_replicas=1")
    for count in counts:
        assert largest_difference(one, trainer.weights(*settings, f"distribute.num_replicas={count}")) <= 1e-9


def test_a_layer_that_cannot_be_patched_is_refused_on_request_and_else_named(trainer):
    flipped = (*EXACT, "model.build=stock_models:flipped", "train.total=1 steps")
    with pytest.raises(ConfigError, match=r"train.invariance=require: .* random_flip \(RandomFlip\): it draws random"):
        trainer.train(trainer.run(*flipped, "train.invariance=require"))
    run = trainer.run(*flipped)
    trainer.train(run)
    assert "depends on the number of replicas for model layer random_flip" in (run.logs / "train.log").read_text()
