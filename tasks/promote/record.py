"""RegisteredModel and Predictions: what registration and prediction hand on."""

from tasks.files import Record


class RegisteredModel(Record):
    """A version of a model in the MLflow registry."""

    name: str
    version: int
    uri: str
    """What `mlflow.pyfunc.load_model` takes: models:/<name>/<version>."""
    digest: str
    """ExportManifest.digest of the SavedModel in it."""


class Prediction(Record):
    """What a model answers to one example."""

    source: str
    """The file, and after a colon the number of the row from 1 on if it is one of rows."""
    label: str | None
    """Name of the class, or the names of those that are there; None of a regression."""
    probability: float | None
    """Of that class; None if there may be any number of classes, and of a regression."""
    outputs: dict[str, float]
    """The probability of each class, or each number of a regression."""


class Predictions(Record):
    """The answers of a registered model to files."""

    model: RegisteredModel
    predictions: tuple[Prediction, ...]
    """In the order of files and rows."""
    notes: tuple[str, ...]
    """On columns that are no inputs of the model."""
