"""Each kind of target has its loss, figures and predictions, and they are those of the global batch."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file
from sklearn import metrics

from tasks.config import build_config
from tasks.errors import ConfigError
from tasks.events import history
from tasks.prepare.manifest import FeatureStatistics, SplitManifest
from tasks.target import FIGURES
from tasks.train.head import make_head
from tests.every_kind import manifest_of
from tests.target_kinds import prepared

RNG = np.random.default_rng(1)
BINARY = np.array([0, 1, 1, 0, 1, 0])
HOT = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]], np.uint8)  # the third is nowhere
NUMBERS = np.array([[1e9 + 1, 1], [1e9 + 2, 4], [1e9, 2], [1e9 + 4, 4], [1e9 + 3, 0], [1e9 + 2, 1]])
KINDS = {"multi_label": (HOT, HOT.sum(axis=0)), "binary": (BINARY, [3, 3]), "regression": (NUMBERS, ())}
EXACT = ("train.precision=float64", "train.total=6 steps")  # 184 examples in batches of 64: two of 6 steps are short


def head_of(kind, *overrides, counts=None):
    """Returns the head of a run on six validation examples."""
    source = {"kind": "table", "path": "t.csv", "target": "y"}
    config = build_config({"name": "any", "data": {"source": source, "target": {"kind": kind}}}, overrides)
    split = SplitManifest(num_examples=6, class_counts=KINDS[kind][1] if counts is None else counts, shards=())
    names = ("no", "yes") if kind == "binary" else ("a", "b", "c")[: KINDS[kind][0].shape[1]]
    statistics = {
        f"label.{place}": FeatureStatistics(mean=mean, std=std)
        for place, (mean, std) in enumerate(((1e9, 2.0), (2.0, 4.0)))
    }
    manifest = manifest_of({"train": split, "validation": split}, label_map=names, statistics=statistics)
    return make_head(config, manifest.model_copy(update={"config": {"target": {"kind": kind}}}))


def outputs_of(kind):
    return RNG.normal(0, 2, (6, {"binary": 1, "multi_label": 3, "regression": 2}[kind]))


@pytest.mark.parametrize("smoothing", [0, 0.2])
def test_cross_entropy_of_a_logit_is_kerass_with_weights_and_smoothing(smoothing):
    settings = (f"train.label_smoothing={smoothing}", "train.class_weights={'yes': 3}")
    logits = outputs_of("binary")
    keras_loss = keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=smoothing, reduction=None)
    with tf.device("CPU"):
        found = head_of("binary", *settings).loss(tf.constant(BINARY), tf.constant(logits)).numpy()
        wanted = keras_loss(BINARY[:, None].astype(float), logits).numpy() * np.where(BINARY == 1, 3, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    logits = outputs_of("multi_label")
    head = head_of("multi_label", f"train.label_smoothing={smoothing}")
    found = head.loss(tf.constant(HOT), tf.constant(logits)).numpy()
    np.testing.assert_allclose(found, keras_loss(HOT.astype(float), logits).numpy(), rtol=1e-6)
    weighted = head_of("multi_label", "train.class_weights={a: 2, b: 0, c: 0}").loss(
        tf.constant(HOT), tf.constant(logits)
    )
    first = np.logaddexp(0, logits[:, 0]) - HOT[:, 0] * logits[:, 0]
    np.testing.assert_allclose(weighted, 2 * first / 3, rtol=1e-12)


@pytest.mark.parametrize(
    ("loss", "of"),
    [
        ("mse", lambda error: error**2),
        ("mae", np.abs),
        ("huber", lambda error: np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5)),
    ],
)
def test_a_regression_is_learned_in_deviations_and_told_in_its_own_unit(loss, of):
    head, outputs = head_of("regression", f"train.loss={loss}"), outputs_of("regression")
    errors = (NUMBERS - [1e9, 2]) / [2, 4] - outputs
    wanted = of(errors).mean(axis=1)
    np.testing.assert_allclose(head.loss(tf.constant(NUMBERS), tf.constant(outputs)), wanted, rtol=1e-9)
    learned = head.as_learned(tf.constant(NUMBERS), tf.float32)  # of a loss of the user's own too
    np.testing.assert_allclose(learned, (NUMBERS - [1e9, 2]) / [2, 4], rtol=1e-6)
    found = head.figures(NUMBERS, outputs)
    np.testing.assert_allclose(
        head.score(tf.constant(NUMBERS), tf.constant(outputs)).numpy().mean(), found["mae"], rtol=1e-6
    )
    values = outputs * [2, 4] + [1e9, 2]
    np.testing.assert_array_equal(head.predictions(outputs), values)
    assert found == {
        "loss": pytest.approx(wanted.mean(), rel=1e-9),
        "mae": metrics.mean_absolute_error(NUMBERS, values),
        "rmse": metrics.root_mean_squared_error(NUMBERS, values),
        "r2": metrics.r2_score(NUMBERS, values),
    }
    assert "r2" not in head.figures(NUMBERS[:1], outputs[:1])


def test_figures_of_two_classes_are_scikit_learns_at_the_threshold():
    head, logits = head_of("binary", "evaluate.threshold=0.7"), outputs_of("binary")
    probabilities = head.predictions(logits)
    predicted = probabilities[:, 1] >= 0.7
    assert head.figures(BINARY, logits) == {
        "accuracy": np.mean(predicted == BINARY),
        "loss": pytest.approx(metrics.log_loss(BINARY, probabilities), rel=1e-12),
        "precision": metrics.precision_score(BINARY, predicted),
        "recall": metrics.recall_score(BINARY, predicted),
        "roc_auc": metrics.roc_auc_score(BINARY, probabilities[:, 1]),
    }
    score = head.score(tf.constant(BINARY), tf.constant(logits)).numpy()
    np.testing.assert_array_equal(score, predicted == BINARY)
    assert "roc_auc" not in head.figures(np.ones(6, int), logits), "of one class there is no such curve"


def test_figures_of_any_number_of_classes_are_scikit_learns_over_those_that_are_there():
    head, logits = head_of("multi_label", "evaluate.threshold=0.3"), outputs_of("multi_label")
    predicted = head.predictions(logits) >= 0.3
    found = head.figures(HOT, logits)
    assert found.keys() == set(FIGURES["multi_label"])
    assert found["subset_accuracy"] == np.mean((predicted == HOT).all(axis=1))
    np.testing.assert_array_equal(
        head.score(tf.constant(HOT), tf.constant(logits)).numpy(), (predicted == HOT).all(axis=1)
    )
    assert found["macro_f1"] == metrics.f1_score(HOT, predicted, average="macro", zero_division=0)
    there = slice(2)
    assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(HOT[:, there], logits[:, there]))
    assert found["mean_average_precision"] == pytest.approx(
        metrics.average_precision_score(HOT[:, there], logits[:, there])
    )


@pytest.mark.parametrize(
    ("kind", "counts", "metric"), [("binary", (6, 0), "roc_auc"), ("multi_label", (0, 6, 0), "roc_auc")]
)
def test_a_metric_that_the_validation_split_cannot_tell_is_refused(kind, counts, metric):
    with pytest.raises(ConfigError, match=f"train.best_metric=val_{metric}: cannot be told of the 6 validation"):
        head_of(kind, f"train.best_metric=val_{metric}", counts=counts)


@pytest.fixture(scope="module")
def trainers(trainer, tmp_path_factory):
    """Trainers of the kinds of target, all on one small table."""
    workspace = tmp_path_factory.mktemp("kinds")

    def trainer_of(kind):
        config, shards = prepared(kind, workspace)
        return type(trainer)(
            replace(trainer.digits, workspace=workspace, config=config, shards=shards), trainer._workers
        )

    return SimpleNamespace(of=trainer_of)


def _differ(left, right):
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def test_two_replicas_match_one_in_float64_and_tell_the_same_figures(trainers):
    trainer = trainers.of("regression")
    runs = [trainer.run(*EXACT, f"distribute.num_replicas={count}") for count in (1, 2)]
    one, two = (load_file(Path(trainer.train(run)["last_checkpoint"]) / "variables.safetensors") for run in runs)
    assert _differ(one, two) <= 1e-9
    told = [history(run.events) for run in runs]
    for name in ("loss", "mae", *(f"val_{figure}" for figure in FIGURES["regression"])):
        assert told[0][name] == pytest.approx(told[1][name], rel=1e-9), "the last batch of an epoch is short"


@pytest.mark.prove
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("regression", ("train.loss=huber",)),
        ("binary", ("train.class_weights=balanced", "train.label_smoothing=0.1")),
        ("multi_label", ("train.class_weights={low: 2}", "train.label_smoothing=0.1")),
    ],
)
def test_two_and_four_replicas_match_one_in_float64_with_every_setting(trainers, kind, settings):
    one, two, four = (
        trainers.of(kind).weights(*EXACT, *settings, f"distribute.num_replicas={count}") for count in (1, 2, 4)
    )
    assert _differ(one, two) <= 1e-9
    assert _differ(one, four) <= 1e-9
