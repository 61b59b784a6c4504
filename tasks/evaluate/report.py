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


class EvalReport(Record):
    """Exact figures of one checkpoint on one split; each example counted once."""

    checkpoint: Path
    split: str
    num_examples: int
    accuracy: float
    loss: float
    """Mean cross-entropy in nats."""
    classes: tuple[ClassFigures, ...]
    directory: Path
    """report/ of the run: report.json, predictions.npz, confusion_matrix.png, learning_curves.png, COMPLETED.

    predictions.npz: ids [n] int64, labels [n] int64, probabilities [n, num_classes] float64, and what the exported
    model takes of the split's first examples, for `tasks.evaluate.inputs.read_inputs`.
    """
