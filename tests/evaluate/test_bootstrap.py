"""Intervals: those of resampled examples, of figures that are scikit-learn's in every resample."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn import metrics

from tasks.evaluate import bootstrap
from tasks.evaluate.judged import Judged
from tasks.evaluate.report import Interval

RNG = np.random.default_rng(3)
NUM = 60
SCORES = RNG.normal(size=(NUM, 3)).round(1).astype(np.float32)  # some are equal
TARGETS = {
    "binary": (SCORES[:, 0] + RNG.normal(size=NUM) > 0).astype(np.int64),
    "multi_label": (SCORES + RNG.normal(size=(NUM, 3)) > [0, 0, 9]).astype(np.uint8),  # the third is nowhere
    "regression": 1e9 + RNG.normal(size=(NUM, 3)),
}


def judged(kind):
    outputs, targets = SCORES[:, :1] if kind == "binary" else SCORES, TARGETS[kind]
    predictions = outputs + 1e9 if kind == "regression" else expit(outputs.astype(np.float64))
    decisions = predictions if kind == "regression" else (predictions >= 0.5).astype(targets.dtype)
    decisions = decisions[:, 0] if kind == "binary" else decisions
    return Judged(np.arange(NUM), targets, outputs, predictions, decisions, RNG.exponential(size=NUM))


def expected(kind, examples, rows):
    true, said, scores = examples.targets[rows], examples.decisions[rows], examples.outputs[rows]
    found = {"loss": examples.losses[rows].mean()}
    match kind:
        case "binary":
            found |= {
                "accuracy": metrics.accuracy_score(true, said),
                "precision": metrics.precision_score(true, said, zero_division=0),
                "recall": metrics.recall_score(true, said, zero_division=0),
                "roc_auc": metrics.roc_auc_score(true, scores[:, 0]),
            }
        case "multi_label":
            told = range(2)
            found |= {
                "subset_accuracy": metrics.accuracy_score(true, said),
                "micro_f1": metrics.f1_score(true, said, average="micro", zero_division=0),
                "macro_f1": metrics.f1_score(true, said, average="macro", zero_division=0),
                "roc_auc": np.mean([metrics.roc_auc_score(true[:, c], scores[:, c]) for c in told]),
                "mean_average_precision": np.mean(
                    [metrics.average_precision_score(true[:, c], scores[:, c]) for c in told]
                ),
            }
        case _:
            found |= {
                "mae": metrics.mean_absolute_error(true, said),
                "rmse": metrics.root_mean_squared_error(true, said),
                "r2": metrics.r2_score(true, said),
            }
    return found


@pytest.mark.parametrize("kind", TARGETS)
def test_figures_of_a_resample_are_scikit_learns(kind):
    examples = judged(kind)
    rows = np.stack([np.arange(NUM), *RNG.integers(NUM, size=(5, NUM))])
    counts = np.stack([np.bincount(some, minlength=NUM) for some in rows]).astype(np.float64)
    found = bootstrap.sums(kind, examples)(counts)
    if kind != "regression":
        found |= bootstrap.ranks(kind, examples)(counts)
    for place, some in enumerate(rows):
        wanted = expected(kind, examples, some)
        assert {name: values[place] for name, values in found.items()} == pytest.approx(wanted, rel=1e-9)


def test_an_interval_is_scipys_of_the_same_seed():
    right = np.arange(NUM) % 4 > 0
    examples = Judged(np.arange(NUM), right * 1, SCORES, SCORES, np.ones(NUM, int), RNG.exponential(size=NUM))
    found = bootstrap.intervals("multiclass", examples, num_resamples=200, seed=7)
    assert found.keys() == {"accuracy", "loss"}
    for name, values in (("accuracy", right), ("loss", examples.losses)):
        due = stats.bootstrap(
            (values,), np.mean, n_resamples=200, method="percentile", rng=np.random.default_rng(7)
        ).confidence_interval
        assert (found[name].low, found[name].high) == pytest.approx(tuple(due), rel=1e-12)
        assert found[name].num_resamples == 200


def test_what_a_resample_cannot_tell_is_not_counted():
    targets, scores = np.array([0, 0, 0, 1]), np.array([[0.0], [1.0], [2.0], [3.0]])
    examples = Judged(np.arange(4), targets, scores, expit(scores), np.ones(4, int), scores[:, 0])
    found = bootstrap.intervals("binary", examples, num_resamples=300, seed=0)
    rows = np.random.default_rng(0).integers(4, size=(300, 4))
    num_told = sum(0 < targets[some].sum() < 4 for some in rows)
    assert found["roc_auc"] == Interval(low=1, high=1, num_resamples=num_told)
    assert found["loss"].num_resamples == 300 > num_told


def test_very_many_examples_are_ranked_less_often(monkeypatch):
    monkeypatch.setattr(bootstrap, "MAX_RANKED", NUM * 120)
    found = bootstrap.intervals("binary", judged("binary"), num_resamples=500, seed=0)
    assert {name: each.num_resamples for name, each in found.items()} == {
        "accuracy": 500,
        "loss": 500,
        "precision": 500,
        "recall": 500,
        "roc_auc": 120,
    }


def test_of_resamples_of_one_number_alone_rounding_makes_no_spread():
    targets = np.array([[0.1], [0.7], [123.3]])
    examples = Judged(np.arange(3), targets, targets, targets + 0.1, targets + 0.1, np.ones(3))
    assert bootstrap.intervals("regression", examples, num_resamples=200, seed=1)["r2"].low > -1e6


def test_of_one_example_or_of_no_resamples_there_is_no_interval():
    one = Judged(*(np.ones((1, 1)) for _ in range(6)))
    assert bootstrap.intervals("regression", one, num_resamples=100, seed=0) == {}
    assert bootstrap.intervals("binary", judged("binary"), num_resamples=0, seed=0) == {}
