"""Activations that are computed again are the same: dropout draws its masks again, statistics do not move twice."""

import numpy as np
import pytest

from tasks.errors import ConfigError

EXACT = (
    "train.precision=float64",
    "train.total=4 steps",
    "feed.global_batch_size=500",  # the third is short
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.args={momentum: 0.9}",
    "train.optimizer.schedule.kind=constant",
    "distribute.num_replicas=2",
)
BLOCKS = ("model.build=models_for_tests:blocks", "model.args={}")
CNN = ("model.args={width: 4, largest_value: 16}",)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("settings", "which"),
    [(CNN, "true"), ((*BLOCKS, "train.precision=mixed_float16", "train.microbatch=125"), "[^mixing]")],
    ids=["a convolutional chain", "blocks in 16 bits, in microbatches"],
)
def test_a_training_that_recomputes_ends_with_the_same_bits(trainer, settings, which):
    kept = trainer.weights(*EXACT, *settings)
    again = trainer.weights(*EXACT, *settings, f"train.recompute={which}")
    assert kept.keys() == again.keys()
    assert max(float(np.abs(kept[name] - again[name]).max()) for name in kept) == 0


@pytest.mark.prove
def test_each_forward_operation_of_a_part_is_done_twice(trainer):
    found = trainer.call("train_functions:count_reductions", trainer.run(*EXACT, *CNN, "train.recompute=true"))
    assert found["operations"]["Conv2D"] == 2 * 4, "two convolutions on two replicas"


def test_what_cannot_be_recomputed_is_refused(trainer):
    one_step = (*EXACT, "train.total=1 steps")
    for settings, message in (
        ((*BLOCKS, "train.recompute=[block]"), "train.recompute: 'block' is found in none of"),
        (
            ("model.build=stock_models:image", "model.args={}", "train.recompute=[^block]"),
            "^train.recompute: layer dense.* adds a loss, whose gradient would be lost",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            trainer.train(trainer.run(*one_step, *settings))
