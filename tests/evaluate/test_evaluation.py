"""Evaluation: each example counted once, the figures the field's own, on any number of replicas."""

import logging

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, f1_score, log_loss, precision_score, recall_score

from tasks.errors import DataError, TrainingError
from tasks.evaluate.inputs import read_inputs
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import INPUTS, PREDICTIONS, REPORT, EvalReport
from tasks.evaluate.stage import find_report
from tasks.files import verify
from tasks.train.checkpoint import VARIABLES

PNG = b"\x89PNG\r\n\x1a\n"


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


def test_one_replica_gives_the_figures_of_two(report, trained_run):
    other = trained_run.copy("one-replica", "distribute.kind=one_device", "evaluate.batch_size=180").evaluate()
    two, one = (read_predictions(each.directory / PREDICTIONS) for each in (report, other))
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.predictions, two.predictions, rtol=0, atol=1e-5)
    assert other.figures["accuracy"] == report.figures["accuracy"]
    assert other.figures["loss"] == pytest.approx(report.figures["loss"], abs=1e-5)


def test_report_directory_holds_figures_plots_and_inputs(report):
    verify(report.directory)
    assert EvalReport.read(report.directory / REPORT) == report
    for plot in ("confusion_matrix.png", "learning_curves.png"):
        assert (report.directory / plot).read_bytes().startswith(PNG)
    first = load_digits().images[read_predictions(report.directory / PREDICTIONS).ids[:4]]
    kept = read_inputs(report.directory / INPUTS)
    assert kept["image"].dtype == np.uint8
    np.testing.assert_array_equal(kept["image"], first[..., None])


def test_second_evaluation_takes_the_report_that_is_there(report, trained_run):
    before = (report.directory / REPORT).stat()
    assert trained_run.evaluate() == report == find_report(trained_run.run)
    assert (report.directory / REPORT).stat() == before


def test_damaged_report_is_noticed_and_made_anew(trained_run, caplog):
    trained = trained_run.copy("damaged-report")
    report = trained.evaluate()
    file = report.directory / REPORT
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
