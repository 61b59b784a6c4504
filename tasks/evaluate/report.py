"""EvalReport: what evaluation hands on."""

from pathlib import Path

from tasks.files import Record

REPORT = "report.json"
PREDICTIONS = "predictions.npz"


class ClassFigures(Record):
    """Figures of one class (scikit-learn's definitions)."""

    name: str
    num_examples: int
    precision: float
    recall: float
    f1: float


class NumberFigures(Record):
    """Figures of one number of a regression, in its own unit (scikit-learn's definitions)."""

    name: str
    mae: float
    rmse: float
    r2: float | None
    """None for a single example."""


class EvalReport(Record):
    """Exact figures of one checkpoint on one split; each example counted once."""

    checkpoint: Path
    split: str
    num_examples: int
    figures: dict[str, float]
    """As `tasks.target.FIGURES` names them, without those that the split cannot tell. The loss is the mean
    cross-entropy in nats, of numbers the error in deviations of the training split."""
    headline: str
    """The figure that is shown first."""
    classes: tuple[ClassFigures, ...]
    """At evaluate.threshold, where there is one; empty for a regression."""
    numbers: tuple[NumberFigures, ...] = ()
    """Of a regression."""
    directory: Path
    """report/ of the run: report.json, predictions.npz, learning_curves.png, other plots by kind, COMPLETED.

    predictions.npz: ids [n] int64, labels [n, ...] as `tasks.prepare.targets` has them, probabilities
    [n, num_classes] or values [n, num_numbers] float64, and what the exported model takes of the split's first
    examples, for `tasks.evaluate.inputs.read_inputs`.
    """

    @property
    def line(self) -> str:
        """The first figures in words: 'accuracy 0.9833, loss 0.0562'."""
        return ", ".join(f"{name} {self.figures[name]:.4f}" for name in dict.fromkeys((self.headline, "loss")))
