"""Evaluation: each example counted once, the figures the field's own, on any number of replicas."""

import logging

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, f1_score, log_loss, precision_score, recall_score

from tasks.errors import DataError, TrainingError
from tasks.evaluate.inputs import read_inputs
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import INPUTS, PREDICTIONS, REPORT, EvalReport
from tasks.evaluate.stage import find_report
from tasks.feed.records import stored_batches
from tasks.files import atomic_directory, verify
from tasks.train.checkpoint import VARIABLES

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def copy_with_report(report, trained_run):
    """Returns a function that copies the run with its report."""

    def copied(run_id, *overrides):
        trained = trained_run.copy(run_id, *overrides)
        own = {"checkpoint": trained.result.best_checkpoint, "directory": trained.run.report}
        with atomic_directory(trained.run.report) as incomplete:
            report.model_copy(update=own).write(incomplete / REPORT)
        return trained

    return copied


def test_every_example_is_counted_once_when_the_last_batch_is_short(report, trained_run):
    predictions = read_predictions(report.directory / PREDICTIONS)
    ids, test = predictions.ids, trained_run.shards.manifest().splits["test"]
    assert report.num_examples == len(ids) == len(set(ids)) == 180  # batches of 50, 50, 50 and 30, each on two replicas
    np.testing.assert_array_equal(predictions.targets, load_digits().target[ids])
    assert tuple(figures.num_examples for figures in report.classes) == test.class_counts


def test_figures_are_scikit_learns(report):
    predictions = read_predictions(report.directory / PREDICTIONS)
    labels, probabilities = predictions.targets, predictions.predictions
    predicted = probabilities.argmax(axis=1)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert report.headline == "accuracy"
    assert report.figures["accuracy"] == accuracy_score(labels, predicted)
    assert report.figures["loss"] == pytest.approx(log_loss(labels, probabilities), rel=1e-12)
    assert [figures.name for figures in report.classes] == list("0123456789")
    for name, score in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        expected = score(labels, predicted, average=None, zero_division=0)
        assert [getattr(figures, name) for figures in report.classes] == expected.tolist()


def test_one_replica_gives_the_figures_of_two(report, copy_with_report):
    settings = "distribute.kind=one_device", "evaluate.batch_size=180"
    same = copy_with_report("batches-of-180", *settings)
    assert same.evaluate() == EvalReport.read(same.run.report / REPORT), "there already: a batch changes no figure"
    other = copy_with_report("one-replica", *settings, "evaluate.num_worst=3").evaluate()
    assert len(other.worst) == 3, "made anew, since it is to say something else"
    two, one = (read_predictions(each.directory / PREDICTIONS) for each in (report, other))
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.predictions, two.predictions, rtol=0, atol=1e-5)
    assert other.figures["accuracy"] == report.figures["accuracy"]
    assert other.figures["loss"] == pytest.approx(report.figures["loss"], abs=1e-5)


def test_intervals_slices_and_calibration_are_of_the_same_examples(report):
    assert report.intervals.keys() == report.figures.keys()
    for name, interval in report.intervals.items():
        assert interval.low <= report.figures[name] <= interval.high
        assert interval.num_resamples == 1000
    assert [(each.column, each.value, each.num_examples) for each in report.slices] == [
        ("label", figures.name, figures.num_examples) for figures in report.classes
    ]
    assert [each.figures["accuracy"] for each in report.slices] == [figures.recall for figures in report.classes]
    assert {each.is_small for each in report.slices} == {True}
    assert report.metrics == {
        **report.figures,
        "num_examples": 180,
        "ece": report.calibration.ece,
        "num_leaked": report.num_leaked,
    }
    assert sum(each.num_examples for each in report.calibration.bins) == 180
    right = sum(each.num_examples * each.accuracy for each in report.calibration.bins)
    assert right / 180 == pytest.approx(report.figures["accuracy"])


def test_the_worst_examples_are_shown_as_they_are(report):
    predictions, digits = read_predictions(report.directory / PREDICTIONS), load_digits()
    assert predictions.losses.mean() == pytest.approx(report.figures["loss"], rel=1e-12)
    order = np.argsort(-predictions.losses)[:12]
    assert [each.id for each in report.worst] == predictions.ids[order].tolist()
    for each, row in zip(report.worst, order, strict=True):
        assert (each.loss, each.target) == (predictions.losses[row], str(digits.target[each.id]))
        assert each.predicted == str(predictions.predictions[row].argmax())
        with Image.open(report.directory / each.images["image"]) as image:
            np.testing.assert_array_equal(np.asarray(image), digits.images[each.id] * 15)


def test_no_digit_has_leaked(report, trained_run):
    images, test = load_digits().images, read_predictions(report.directory / PREDICTIONS).ids
    train = np.concatenate(
        [
            batch["id"]
            for batch in stored_batches(trained_run.shards.directory, trained_run.shards.manifest(), "train", ["id"])
        ]
    )
    seen = {images[id].tobytes() for id in train}
    assert len(train) == 1437
    assert (report.num_leaked, report.leaked) == (sum(images[id].tobytes() in seen for id in test), ())


def test_report_directory_holds_figures_plots_and_inputs(report):
    verify(report.directory)
    assert EvalReport.read(report.directory / REPORT) == report
    for plot in ("calibration.png", "confusion_matrix.png", "learning_curves.png", "precision_recall.png", "roc.png"):
        assert (report.directory / plot).read_bytes().startswith(PNG)
    first = load_digits().images[read_predictions(report.directory / PREDICTIONS).ids[:4]]
    kept = read_inputs(report.directory / INPUTS)
    assert kept["image"].dtype == np.uint8
    np.testing.assert_array_equal(kept["image"], first[..., None])


def test_second_evaluation_takes_the_report_that_is_there(report, trained_run):
    before = (report.directory / REPORT).stat()
    assert trained_run.evaluate() == report == find_report(trained_run.run)
    assert (report.directory / REPORT).stat() == before


def test_damaged_report_is_noticed_and_made_anew(copy_with_report, caplog):
    trained = copy_with_report("damaged-report")
    file = trained.run.report / REPORT
    report = EvalReport.read(file)
    file.write_text(file.read_text().replace('"num_examples": 180', '"num_examples": 181'))
    with pytest.raises(DataError, match=r"report\.json: content has changed"):
        find_report(trained.run)
    with caplog.at_level(logging.WARNING, "millstream"):
        assert trained.evaluate() == report
    assert "report.json" in caplog.text
    verify(report.directory)


def test_checkpoint_with_a_changed_byte_is_refused(trained_run):
    trained = trained_run.copy("changed-byte")
    file = trained.result.best_checkpoint / VARIABLES
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"variables\.safetensors: content has changed"):
        trained.evaluate()
    assert not trained.run.report.exists()


def test_logits_that_are_not_finite_are_refused_and_an_example_is_named(trained_run):
    trained = trained_run.copy("not-finite")
    trained.change_weights(lambda bias: bias * np.nan)
    with pytest.raises(TrainingError, match=r"180 of 180 test examples are not finite.* example \d+"):
        trained.evaluate()
    assert not trained.run.report.exists()
    with pytest.raises(DataError, match="was not evaluated"):
        find_report(trained.run)
