"""A loss of the user's own: of each example, right on any number of replicas, and part of the run's key."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tasks.config import ModelConfig, build_config
from tasks.errors import ConfigError
from tasks.models.build import code_digest
from tasks.train.loss import own_loss

HERE = str(Path(__file__).parent)
EXACT = (
    "train.precision=float64",
    "train.total=4 steps",
    "feed.global_batch_size=500",  # the third is short
    "train.optimizer.name=sgd",
    "train.optimizer.learning_rate=0.05",
    "train.optimizer.schedule.kind=constant",
    "model.build=models_for_tests:dense",
    "model.args={}",
)


def loss_of(name, weights=None):
    return own_loss(f"losses_for_tests:{name}", HERE, weights)


def test_it_is_called_with_labels_and_logits_and_weighed_by_class():
    labels, logits = tf.constant([0, 2], tf.int64), tf.constant([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    p = np.array([np.exp(2) / (np.exp(2) + 2), 1 / 3])
    found = loss_of("focal", [1.0, 1.0, 4.0])(labels, logits)
    np.testing.assert_allclose(found, -np.log(p) * (1 - p) ** 2 * [1, 4], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "mean",
            r"train.loss='losses_for_tests:mean': returned the shape \(\) for 2 examples; it must return the loss of",
        ),
        ("number", "returned nothing with a shape"),
        ("missing", r"train.loss='losses_for_tests:missing': .*no attribute 'missing'; name a function of that module"),
    ],
)
def test_one_that_does_not_fit_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        loss_of(name)(tf.constant([0, 1], tf.int64), tf.zeros([2, 3]))


def test_label_smoothing_has_no_place_in_it():
    with pytest.raises(ConfigError, match=r"train.label_smoothing=0.1: is part of the cross-entropy, in whose place"):
        build_config({"name": "digits"}, ["train.loss=mine:loss", "train.label_smoothing=0.1"])


def test_its_code_is_part_of_the_key(tmp_path):
    (tmp_path / "mine.py").write_text("def loss(labels, logits): return 1\n")
    model = ModelConfig(folder=str(tmp_path))
    before = code_digest(model, "mine:loss")
    (tmp_path / "mine.py").write_text("def loss(labels, logits): return 2\n")
    assert len({before, code_digest(model, "mine:loss"), code_digest(model)}) == 3


@pytest.mark.prove
def test_two_replicas_match_one(trainer):
    settings = (*EXACT, "train.loss=losses_for_tests:focal")
    one, two = (trainer.weights(*settings, f"distribute.num_replicas={count}") for count in (1, 2))
    assert max(float(np.abs(one[name] - two[name]).max()) for name in one) <= 1e-9


@pytest.mark.prove
def test_cross_entropy_of_ones_own_gives_the_bits_of_ours(trainer):
    one, other = trainer.weights(*EXACT), trainer.weights(*EXACT, "train.loss=losses_for_tests:cross_entropy")
    assert all(np.array_equal(one[name], other[name]) for name in one)
