"""EvalReport: what evaluation hands on."""

from pathlib import Path

from pydantic import Field

from tasks.evaluation import EvaluateConfig
from tasks.events import metric_part
from tasks.files import Record

REPORT = "report.json"
PAGE = "report.html"
MODEL_CARD = "model_card.md"
PREDICTIONS = "predictions.parquet"
INPUTS = "inputs.npz"
WORST_INPUTS = "worst/inputs.json"  # of the worst examples, {id: {input: value}}, but for images


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


class Interval(Record):
    """Between which a figure lies in 95 % of the resamples of the split's examples (bootstrap, percentiles)."""

    low: float
    high: float
    num_resamples: int
    """Resamples that it is of: evaluate.num_resamples, less those that could not tell the figure; of figures by rank
    fewer, if there are very many examples and classes."""


class SliceFigures(Record):
    """Figures of the examples that have one value in a column."""

    column: str
    """As evaluate.slices names it."""
    value: str
    """In words; of many numbers a range between quantiles of the split, such as '0.5 to 1.25'."""
    num_examples: int
    is_small: bool
    """True below evaluate.min_slice_examples: chance weighs more than the model."""
    figures: dict[str, float]
    """As EvalReport.figures, without those that so few examples cannot tell."""


class CalibrationBin(Record):
    """Predictions of about the same confidence, at least one of them."""

    low: float
    high: float
    num_examples: int
    """Of multi_label predictions: one for each class of each example."""
    mean_confidence: float
    accuracy: float
    """Share of them that is right; of binary and multi_label the share of the positive."""


class Calibration(Record):
    """How far a probability can be taken at its word.

    The confidence is the probability of the predicted class; of binary that of the positive class, of multi_label that
    of each class of each example.
    """

    ece: float
    """Expected calibration error: the mean of |accuracy - mean confidence| of the bins, weighted by their examples."""
    bins: tuple[CalibrationBin, ...]
    """Of equal width, those that have examples, in rising order."""


class WorstExample(Record):
    """An example whose loss is among the highest."""

    id: int
    target: str
    """In words: the class, the classes, or the numbers."""
    predicted: str
    """Likewise."""
    loss: float
    images: dict[str, str] = Field(default_factory=dict)
    """{input: its file in the report directory, such as 'worst/17.png'}; all other inputs are in WORST_INPUTS."""


class EvalReport(Record):
    """Exact figures of one checkpoint on one split; each example counted once."""

    checkpoint: Path
    split: str
    num_examples: int
    settings: EvaluateConfig
    """What it was made with."""
    figures: dict[str, float]
    """As `tasks.target.FIGURES` names them, without those that the split cannot tell. The loss is the mean
    cross-entropy in nats, of numbers the error in deviations of the training split."""
    headline: str
    """The figure that is shown first."""
    classes: tuple[ClassFigures, ...]
    """At evaluate.threshold, where there is one; empty for a regression."""
    numbers: tuple[NumberFigures, ...] = ()
    """Of a regression."""
    intervals: dict[str, Interval] = Field(default_factory=dict)
    """Of those of `figures` that a resample can tell; empty without resamples, or of a single example."""
    slices: tuple[SliceFigures, ...] = ()
    """By column in the order of evaluate.slices, each by value."""
    calibration: Calibration | None = None
    """None for a regression."""
    worst: tuple[WorstExample, ...] = ()
    """The highest loss first, equal ones by id."""
    num_leaked: int | None = None
    """Examples whose inputs are those of a training example, to the byte; None: not looked for (evaluate.check_leaks is
    false, or the training split was evaluated)."""
    leaked: tuple[int, ...] = ()
    """Ids of the first of them."""
    directory: Path
    """report/ of the run: report.json, predictions.parquet, inputs.npz, worst/, learning_curves.png, other plots by
    kind, COMPLETED; README.md of this room says what is in each."""

    @property
    def metrics(self) -> dict[str, float]:
        """What an MLflow run has of it as eval/*, {name: value}.

        Of the slices those that are not small, as slices/<column>/<value>/<figure>, in the letters that MLflow takes.
        """
        found = {**self.figures, "num_examples": self.num_examples}
        if self.calibration is not None:
            found["ece"] = self.calibration.ece
        if self.num_leaked is not None:
            found["num_leaked"] = self.num_leaked
        for each in self.slices:
            if not each.is_small:
                place = f"slices/{metric_part(each.column)}/{metric_part(each.value)}"
                found |= {f"{place}/{name}": value for name, value in each.figures.items()}
        return found

    @property
    def line(self) -> str:
        """The first figures in words: 'accuracy 0.9833, loss 0.0562'."""
        return ", ".join(f"{name} {self.figures[name]:.4f}" for name in dict.fromkeys((self.headline, "loss")))
