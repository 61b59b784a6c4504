"""Training on images that are changed at random and mixed."""

import numpy as np
import pytest

SHIFT_AND_MIX = "feed.augment=[{kind: pad_crop, pixels: 1, border: zero}, {kind: mixup, alpha: 0.2}]"
SGD = ("train.optimizer.name=sgd", "train.optimizer.learning_rate=0.05", "train.optimizer.schedule.kind=constant")
DENSE = ("model.build=models_for_tests:dense", "model.args={}", "train.precision=float64")


def test_two_replicas_match_one_in_float64(trainer):
    settings = (SHIFT_AND_MIX, *DENSE, *SGD, "train.total=9 steps", "feed.global_batch_size=200")
    one, two = (trainer.weights(*settings, f"distribute.num_replicas={count}") for count in (1, 2))
    assert max(float(np.abs(one[name] - two[name]).max()) for name in one) <= 1e-9


def test_the_loss_of_a_mixed_batch_is_that_of_both_labels_by_their_shares(trainer):
    mixing = "feed.augment=[{kind: mixup, alpha: 1}, {kind: cutmix}]"
    run = trainer.run(mixing, *DENSE, *SGD, "feed.global_batch_size=203", "distribute.num_replicas=2")
    found = trainer.call("train_functions:first_step", run)
    logits, share = np.array(found["logits"]), np.array(found["mix_weight"])
    own, other = np.array(found["label"]), np.array(found["mix_label"])
    assert share[-1] == 1
    assert 0 < share.min() < 0.5 < np.sort(share)[-2] < 1
    assert (other[1:202:2] == own[:202:2]).all()
    log_probability = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    rows = np.arange(203)
    losses = -share * log_probability[rows, own] - (1 - share) * log_probability[rows, other]
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    shown_most = np.where(share >= 0.5, own, other)
    assert found["score"] == (logits.argmax(axis=1) == shown_most).sum()


@pytest.mark.prove
def test_the_digits_are_learned_from_shifted_and_mixed_ones(trainer):
    result = trainer.train(trainer.run(SHIFT_AND_MIX, "train.total=8 epochs", "train.best_metric=val_accuracy"))
    assert result["best_value"] >= 0.93
