"""For every kind of target the report has the field's own figures, and the exported model answers what they were of."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from tasks.errors import ExportError
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tasks.evaluate.stage import evaluate
from tasks.events import history
from tasks.export.answer import AnyClasses, Numbers, OneClass
from tasks.export.manifest import SignatureOutput
from tasks.export.parity import check
from tasks.export.stage import export
from tasks.target import FIGURES
from tasks.train.stage import train
from tests.target_kinds import prepared

IDS = np.array([7, 8])


def carried_through(kind, digits, workspace, *overrides):
    """Returns manifest, run, report, what the report's predictions are of, and the exported model."""
    config, shards = prepared(kind, workspace)
    run = type(digits)(workspace, config, shards).run("train.total=2 epochs", "distribute.num_replicas=2", *overrides)
    trained = train(run, shards)
    report = evaluate(run, shards, trained)
    exported = export(run, shards, trained, report)
    return shards, run, report, read_predictions(report.directory / PREDICTIONS), exported


def answers(shards, exported):
    """Returns what the exported model gives for the test split, and the ids of its examples."""
    manifest = shards.manifest()
    files = [str(shards.directory / shard.file) for shard in manifest.splits["test"].shards]
    records = tf.stack(list(tf.data.TFRecordDataset(files)))
    ids = tf.io.parse_example(records, {"id": tf.io.FixedLenFeature([], tf.int64)})["id"].numpy()
    found = tf.saved_model.load(str(exported.directory)).signatures["serialized"](examples=records)
    return ids, {name: value.numpy() for name, value in found.items()}


def test_a_regression_is_told_and_answered_in_its_own_unit(digits, workers, tmp_path):
    shards, _, report, predictions, exported = carried_through("regression", digits, tmp_path)
    true, found = predictions.targets, predictions.predictions
    assert (report.headline, report.classes) == ("mae", ())
    assert report.figures["mae"] == metrics.mean_absolute_error(true, found)
    assert [each.name for each in report.numbers] == ["price", "size"]
    for place, each in enumerate(report.numbers):
        assert each.rmse == metrics.root_mean_squared_error(true[:, place], found[:, place])
        assert each.r2 == metrics.r2_score(true[:, place], found[:, place]) > 0.5, "learned, whatever its size"
    assert (report.directory / "errors.png").stat().st_size > 1000

    ids, answer = answers(shards, exported)
    np.testing.assert_array_equal(ids, predictions.ids)
    _, deviations = shards.manifest().target_scale
    assert np.abs((answer["values"] - found) / deviations).max() <= 1e-5
    assert exported.outputs == {"values": SignatureOutput(shape=(2,), dtype="float64")}
    assert exported.label_map == ("price", "size")


def test_any_number_of_classes_are_told_and_answered_at_the_threshold(digits, workers, tmp_path):
    settings = ("evaluate.threshold=0.3", "train.best_metric=val_macro_f1")
    shards, run, report, predictions, exported = carried_through("multi_label", digits, tmp_path, *settings)
    true, predicted = predictions.targets, predictions.predictions >= 0.3
    table = metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    for place, each in enumerate(report.classes):
        assert (each.precision, each.recall, each.f1, each.num_examples) == tuple(column[place] for column in table)
    assert report.figures["subset_accuracy"] == metrics.accuracy_score(true, predicted)
    assert (report.directory / "classes.png").stat().st_size > 1000

    ids, answer = answers(shards, exported)
    np.testing.assert_array_equal(ids, predictions.ids)
    np.testing.assert_allclose(answer["probabilities"], predictions.predictions, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(answer["class"], answer["probabilities"] >= np.float32(0.3))
    names = np.array(["low", "odd", "wide"])
    assert answer["label"].tolist() == ["|".join(names[row == 1]).encode() for row in answer["class"]]

    told = history(run.events)
    wanted = {"epoch", "loss", "subset_accuracy", "learning_rate", *(f"val_{name}" for name in FIGURES["multi_label"])}
    assert {name for name in told if not name.startswith("perf/")} == wanted


def test_two_classes_are_answered_by_the_threshold_and_not_by_the_larger():
    answer = OneClass(("no", "yes"), 0.7)
    found = {name: value.numpy() for name, value in answer(tf.constant([[0.5], [1.0]])).items()}  # 0.62 and 0.73
    np.testing.assert_allclose(found["probabilities"], [[0.3775, 0.6225], [0.2689, 0.7311]], atol=1e-4)
    assert (found["class"].tolist(), found["label"].tolist()) == ([0, 1], [b"no", b"yes"])
    assert check("s", found, found["probabilities"].astype(float), IDS, answer, tolerance=1e-9) == 0
    wrong = {**found, "class": np.array([1, 1])}
    with pytest.raises(
        ExportError, match="example 7: gives class 1 and label b'no' where its probabilities say 0 and "
    ):
        check("s", wrong, found["probabilities"].astype(float), IDS, answer, tolerance=1e-9)


def test_numbers_are_held_against_the_deviation_of_the_training_split():
    answer = Numbers(("price",), np.array([1e9]), np.array([1000.0]))
    found = {"values": answer(tf.constant([[0.5], [-1.0]]))["values"].numpy()}
    assert found["values"].tolist() == [[1e9 + 500], [1e9 - 1000]]
    trained = found["values"] + [[0], [0.25]]
    assert check("s", found, trained, IDS, answer, tolerance=1e-3) == 0.25 / 1000
    with pytest.raises(ExportError, match=r"example 8: value of 'price' is 999999000 exported .*=0.0001 \* 1000;"):
        check("s", found, trained, IDS, answer, tolerance=1e-4)


def test_no_class_at_all_is_an_empty_label():
    found = AnyClasses(("a", "b"), 0.5, ", ")(tf.constant([[-1.0, -1.0], [1.0, 1.0]]))
    assert found["label"].numpy().tolist() == [b"", b"a, b"]
