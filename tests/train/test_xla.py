"""Forward and backward pass compiled by XLA compute the same, on any number of replicas, or are refused."""

import numpy as np
import pytest

from tasks.config import build_config
from tasks.errors import ConfigError

EXACT = (
    "train.precision=float64",
    "train.total=4 steps",
    "feed.global_batch_size=500",  # the third is short
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.args={momentum: 0.9}",
    "train.optimizer.schedule.kind=constant",
)
PENALISED = ("model.build=models_for_tests:penalised", "model.args={}")
NORMALISED = ("model.args={width: 4, largest_value: 16}", "train.deterministic=false")


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.mark.parametrize(
    "settings",
    [
        (*PENALISED, "distribute.num_replicas=2"),
        pytest.param((*NORMALISED, "distribute.num_replicas=1"), marks=pytest.mark.prove),
        pytest.param((*PENALISED, "distribute.num_replicas=2", "train.microbatch=100"), marks=pytest.mark.prove),
        pytest.param(
            ("model.build=stock_models:image", *NORMALISED[1:], "model.args={}", "distribute.num_replicas=1"),
            marks=pytest.mark.prove,
        ),
    ],
    ids=["dropout, penalties, two replicas", "batch normalisation, one replica", "microbatches", "stock layers"],
)
def test_compiled_training_gives_the_same_weights(trainer, settings):
    plain = trainer.weights(*EXACT, *settings)
    assert largest_difference(plain, trainer.weights(*EXACT, *settings, "train.jit_compile=true")) <= 1e-9


@pytest.mark.prove
def test_in_16_bits_the_loss_is_scaled_as_without_it(trainer):
    settings = (*EXACT, *PENALISED, "train.precision=mixed_float16", "distribute.num_replicas=2")
    plain = trainer.weights(*settings)
    assert 0 < largest_difference(plain, trainer.weights(*settings, "train.jit_compile=true")) <= 1e-3


def test_batch_normalisation_on_several_replicas_is_refused_with_what_to_do(trainer):
    with pytest.raises(ConfigError) as before:  # by the flow process
        build_config({"name": "digits"}, ["train.jit_compile=true", "distribute.num_replicas=2"])
    assert str(before.value) == (
        "train.jit_compile=true: tasks.models.cnn:build normalises over the batch of 2 replicas, and XLA cannot "
        "compile a program that waits for other replicas in its middle; take train.jit_compile=false, one replica "
        "(distribute.num_replicas=1), or a model without batch normalisation (LayerNormalization and "
        "GroupNormalization are by example)"
    )
    run = trainer.run("model.build=models_for_tests:normalised", "model.args={}", "train.jit_compile=true")
    with pytest.raises(ConfigError, match="jit_compile=true: the model normalises over the batch of 2 replicas"):
        trainer.train(run)
    run = trainer.run("train.jit_compile=true", "distribute.kind=one_device")
    with pytest.raises(ConfigError, match=r"\(max_pooling2d, max_pooling2d_1\) is not determ.* in XLA; take train"):
        trainer.train(run)
