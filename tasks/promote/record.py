"""What registration, promotion and prediction hand on."""

from typing import Literal

from tasks.files import Record


class RegisteredModel(Record):
    """A version of a model in the MLflow registry."""

    name: str
    version: int
    uri: str
    """What `mlflow.pyfunc.load_model` takes: models:/<name>/<version>."""
    digest: str
    """ExportManifest.digest of the SavedModel in it."""


class Promotion(Record):
    """A change of the model that is served under a name: who made it, when and why."""

    kind: Literal["promote", "rollback"]
    name: str
    version: int
    """In the registry; @champion since."""
    replaced: int | None
    """The champion before, @previous since; None of the first."""
    digest: str
    """ExportManifest.digest of the SavedModel."""
    number: int
    """Of its directory serving/<name>/<number>, higher than any before."""
    by: str
    """User and host."""
    at: str
    """Time in UTC, ISO 8601."""
    reason: str


class ModelVersion(Record):
    """What the registry knows of a version."""

    name: str
    version: int
    aliases: tuple[str, ...]
    run_id: str | None
    """Of ours; None if it was registered by something else."""
    registered_at: str
    """Time in UTC, ISO 8601."""
    figures: dict[str, float]
    """Of its evaluation: the headline."""
    data_digest: str | None
    commit: str | None
    """Of git, of the run that made it."""
    serving: str | None
    """The last number that it was served under, since when, by whom and why."""


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
