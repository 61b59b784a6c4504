"""Class weights and label smoothing, against numpy and across replicas."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from tasks.config import build_config
from tasks.errors import ConfigError

SGD = (
    "train.optimizer={name: sgd, learning_rate: 0.05, schedule: {kind: constant}}",
    "train.precision=float64",
    "feed.global_batch_size=200",
    "model.build=models_for_tests:dense",
    "model.args={}",
)
WEIGHTED = ("train.class_weights={'0': 4, '3': 0.25, '9': 0}", "train.label_smoothing=0.1")
WEIGHTS = np.array([4, 1, 1, 0.25, 1, 1, 1, 1, 1, 0])


def config(*overrides):
    return build_config({"name": "digits"}, overrides).train


def cross_entropy(logits, labels, smoothing):
    log_probability = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    target = np.eye(10)[labels] * (1 - smoothing) + smoothing / 10
    return -(target * log_probability).sum(axis=1)


@pytest.mark.parametrize(
    ("settings", "weights", "smoothing"),
    [
        (WEIGHTED, WEIGHTS, 0.1),
        (("train.class_weights=balanced",), None, 0),
    ],
)
def test_the_loss_is_the_weighted_sum_over_the_batch_divided_by_its_examples(trainer, settings, weights, smoothing):
    run = trainer.run(*SGD, *settings, "feed.global_batch_size=203", "distribute.num_replicas=2")
    found = trainer.call("train_functions:first_step", run)
    labels = np.array(found["label"])
    if weights is None:
        counts = trainer.digits.shards.manifest().splits["train"].class_counts
        weights = np.array([1437 / (10 * count) for count in counts])
    losses = weights[labels] * cross_entropy(np.array(found["logits"]), labels, smoothing)
    assert found["loss"] == pytest.approx(losses.sum() / 203, rel=1e-12)


def test_the_parts_of_a_mixed_example_have_the_weights_of_their_own_classes(trainer):
    run = trainer.run(*SGD, *WEIGHTED, "feed.augment=[{kind: mixup, alpha: 1}]", "distribute.num_replicas=2")
    found = trainer.call("train_functions:first_step", run)
    share, logits = np.array(found["mix_weight"]), np.array(found["logits"])
    own, other = np.array(found["label"]), np.array(found["mix_label"])
    losses = share * WEIGHTS[own] * cross_entropy(logits, own, 0.1)
    losses += (1 - share) * WEIGHTS[other] * cross_entropy(logits, other, 0.1)
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-6), "the shares are float32"


def test_two_and_four_replicas_match_one_in_float64(trainer):
    settings = (*SGD, *WEIGHTED, "train.total=5 steps", "feed.global_batch_size=360")  # the fourth is short
    one, two, four = (trainer.weights(*settings, f"distribute.num_replicas={count}") for count in (1, 2, 4))
    for name, values in one.items():
        assert np.abs(values - two[name]).max() <= 1e-9
        assert np.abs(values - four[name]).max() <= 1e-9


def test_balanced_weights_are_those_of_scikit_learn():
    from tasks.train.loss import class_weights

    labels = np.repeat(["a", "b", "c"], [7, 2, 11])
    expected = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    assert class_weights(config("train.class_weights=balanced"), "abc", [7, 2, 11]) == pytest.approx(list(expected))
    assert class_weights(config("train.class_weights={b: 2.5}"), "abc", [7, 2, 11]) == [1, 2.5, 1]
    assert class_weights(config(), "abc", [7, 2, 11]) is None


def test_a_weight_of_a_class_that_there_is_not_is_refused_with_those_there_are(trainer):
    run = trainer.run(*SGD, "train.class_weights={'0': 2, ten: 3}")
    with pytest.raises(ConfigError) as refused:
        trainer.train(run)
    assert str(refused.value) == (
        "train.class_weights: 'ten' is no class of the data; its classes are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    )
