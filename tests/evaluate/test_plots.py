"""Plots: they show the numbers that they were given."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn import metrics

from tasks.evaluate import plots
from tasks.evaluate.report import Calibration

HISTORY = {
    "epoch": {10: 1.0, 20: 2.0, 30: 3.0},
    "loss": {10: 1.5, 20: 0.5, 30: 0.25},
    "val_loss": {10: 1.25, 20: 0.5, 30: 0.75},
    "accuracy": {10: 0.5, 20: 0.75, 30: 1.0},
    "val_accuracy": {10: 0.5, 20: 0.875, 30: 0.75},
}


def test_confusion_matrix_shows_counts_and_shades_shares(tmp_path):
    counts = np.array([[1, 1, 0], [0, 900, 0], [0, 0, 0]])
    figure = plots.confusion_matrix(counts, ("rare", "common", "absent"), split="test")
    figure.savefig(tmp_path / "plot.png")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["1", "1", "", "", "900", "", "", "", ""]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 0]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rare", "common", "absent"]
    assert axes.get_title() == "test: 901 of 902 examples right"


def test_confusion_matrix_of_many_classes_has_no_numbers(tmp_path):
    figure = plots.confusion_matrix(np.eye(200, dtype=np.int64), [f"class {i}" for i in range(200)], split="test")
    figure.savefig(tmp_path / "plot.png")
    assert list(figure.axes[0].texts) == []
    assert list(figure.axes[0].get_xticks()) == []


def test_learning_curves_show_every_epoch_and_the_best_step(tmp_path):
    figure = plots.learning_curves(HISTORY, metric="accuracy", best_step=20)
    figure.savefig(tmp_path / "plot.png")
    for axes, name in zip(figure.axes, ("loss", "accuracy"), strict=True):
        training, validation, best = axes.lines
        np.testing.assert_array_equal(training.get_xydata(), list(zip([1, 2, 3], HISTORY[name].values(), strict=True)))
        np.testing.assert_array_equal(validation.get_ydata(), list(HISTORY[f"val_{name}"].values()))
        assert list(best.get_xdata()) == [2, 2]
        assert best.get_label() == "best checkpoint: step 20, epoch 2"
        # Told apart by more than the hue.
        assert training.get_linestyle() != validation.get_linestyle()
        assert to_hex(training.get_color()) != to_hex(validation.get_color())


@pytest.mark.parametrize("epochs", [1, 300])
def test_learning_curves_of_any_length_are_drawn(epochs, tmp_path):
    curve = {epoch: 1 / epoch for epoch in range(1, epochs + 1)}
    history = {
        "epoch": {epoch: float(epoch) for epoch in curve},
        **{name: curve for name in HISTORY if name != "epoch"},
    }
    plots.learning_curves(history, metric="accuracy", best_step=1).savefig(tmp_path / "plot.png")


def test_curves_of_two_classes_end_in_their_corners(tmp_path):
    labels, scores = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    figure = plots.roc_curve(labels, scores, positive="yes")
    figure.savefig(tmp_path / "roc.png")
    curve = figure.axes[0].lines[0].get_xydata()
    assert (curve[0].tolist(), curve[-1].tolist()) == ([0, 0], [1, 1])
    assert "AUC = 0.75" in figure.axes[0].get_legend().get_texts()[0].get_text()
    figure = plots.precision_recall_curve(labels, scores, positive="yes")
    figure.savefig(tmp_path / "precision_recall.png")
    assert figure.axes[0].get_xlabel() == "recall (share of yes that is found)"


def test_several_classes_have_their_curves_and_the_mean_of_them(tmp_path):
    labels = np.array([0, 0, 1, 1, 2, 2])
    probabilities = np.array([[5, 3, 2, 0], [2, 7, 1, 0], [3, 6, 1, 0], [1, 7, 2, 0], [1, 2, 7, 0], [2, 1, 7, 0]]) / 10
    for kind, name, score in (
        ("roc", "AUC", metrics.roc_auc_score),
        ("precision_recall", "AP", metrics.average_precision_score),
    ):
        figure = plots.one_vs_rest(kind, labels, probabilities, ("a", "b", "c", "absent"))
        figure.savefig(tmp_path / "curves.png")
        a, b, c = (score(labels == place, probabilities[:, place]) for place in range(3))
        shown = [*sorted([f"a: {name} {a:.3f}", f"b: {name} {b:.3f}"], key=lambda text: text[-5:]), f"c: {name} 1.000"]
        mean = f"mean of 3 classes: {name} {(a + b + c) / 3:.3f}"
        assert figure.axes[0].get_legend_handles_labels()[1] == [*shown, mean]
    many = np.arange(30)
    figure = plots.one_vs_rest("roc", many, np.eye(30), [f"class {number}" for number in many])
    assert len(figure.axes[0].lines) == len(plots.CURVES) + 1


def test_reliability_shows_accuracy_by_confidence_and_how_many(tmp_path):
    shares = {"low": 0.2, "high": 0.3, "num_examples": 5, "mean_confidence": 0.25, "accuracy": 0.4}
    bins = [shares, {**shares, "low": 0.9, "high": 1, "num_examples": 3, "mean_confidence": 0.95, "accuracy": 1}]
    figure = plots.reliability(Calibration.model_validate({"ece": 0.1125, "bins": bins}))
    figure.savefig(tmp_path / "calibration.png")
    upper, lower = figure.axes
    (curve,) = (line for line in upper.lines if line.get_label() == "ECE 0.1125")
    np.testing.assert_array_equal(curve.get_xydata(), [[0.25, 0.4], [0.95, 1]])
    assert [(bar.get_x(), bar.get_height()) for bar in lower.patches] == [(0.2, 5), (0.9, 3)]


def test_the_table_of_classes_begins_with_the_worst(tmp_path):
    figure = plots.class_table([("good", 1, 1, 1), ("bad", 0.5, 0.25, 1 / 3)])
    figure.savefig(tmp_path / "classes.png")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bad", "good"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.5, 0.25, 1 / 3]


def test_errors_are_shown_of_each_number_by_its_name(tmp_path):
    true = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    figure = plots.errors(true, true + np.array([0.5, -1]), ("price", "size"))
    figure.savefig(tmp_path / "errors.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["examples", "predicted price", "examples", "predicted size"]
    np.testing.assert_array_equal(figure.axes[3].collections[0].get_offsets(), [[10, 9], [20, 19], [30, 29]])
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 3


@pytest.mark.parametrize("error", [0, 0.1, 1e12])
def test_errors_that_are_equal_but_for_rounding_are_drawn(error):
    true = np.random.default_rng(0).normal(size=(50, 1))
    figure = plots.errors(true, true + error, ("price",))
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 50
