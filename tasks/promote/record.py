"""What registration, promotion and prediction hand on."""

from typing import Literal

from tasks.events import metric_part
from tasks.files import Record

DRIFT, DRIFT_PLOT = "drift.json", "drift.png"  # a Drift and its plot, in the directory of a run
GATE = "gate.json"  # a Decision, in the directory of a run
GATE_TAG, GATE_REASONS_TAG = "millstream.gate", "millstream.gate_reasons"  # of a model version and of its MLflow run
ACCEPTED, REJECTED = "accepted", "rejected"  # values of the first
MAX_REASON = 4000  # characters of a reason in a tag, which takes 5,000 in some of MLflow's databases


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


class FeatureDrift(Record):
    """How far the values of a feature are from those that the champion learned from."""

    psi: float
    """Population stability index; by custom below 0.1 little, from 0.25 on much."""
    js: float
    """Jensen-Shannon distance, from 0 to 1."""


class Drift(Record):
    """How far the training data of a run are from those of the champion."""

    champion: str
    """<name>/<version> in the registry."""
    features: dict[str, FeatureDrift]
    """Of the features that the statistics of both manifests have, and of the label."""
    not_compared: dict[str, str]
    """Of the others why."""

    @property
    def metrics(self) -> dict[str, float]:
        """What an MLflow run has of it as drift/*, {name: value}; features in the letters that MLflow takes."""
        found: dict[str, float] = {}
        for name, feature in self.features.items():
            found |= {f"{metric_part(name)}/psi": feature.psi, f"{metric_part(name)}/js": feature.js}
        if self.features:
            found["max_psi"] = max(feature.psi for feature in self.features.values())
        return found

    @property
    def line(self) -> str:
        """The largest in words."""
        if not self.features:
            return f"no feature can be compared with the data of {self.champion}"
        name, largest = max(self.features.items(), key=lambda item: item[1].psi)
        return f"from the data of {self.champion} most in {name}: psi {largest.psi:.4g}, js {largest.js:.4g}"


class Champion(Record):
    """What the champion says of the examples that the challenger was judged on."""

    version: int
    figures: dict[str, float]
    """As EvalReport.figures."""
    slices: dict[str, float]
    """The headline figure of each slice that is not small, by '<column>=<value>'."""
    p_value: float
    """Probability with which chance alone gives a lead like the challenger's, one-sided."""
    test: str
    """How it was found, and on what: in words."""


class Decision(Record):
    """What the gate said of a challenger, and why."""

    name: str
    """Of the registered model."""
    version: int
    """The challenger."""
    champion: int | None
    """The version that it had to beat; None: there was none."""
    accepted: bool
    reasons: tuple[str, ...]
    """A sentence for each thing that was asked: of what is accepted all, of what is rejected those that are not so."""
    figures: dict[str, float]
    """Of the challenger, as EvalReport.figures."""
    champion_figures: dict[str, float]
    """On the same examples; empty without a champion."""
    p_value: float | None
    """As Champion has it; None without one."""

    @property
    def word(self) -> str:
        return ACCEPTED if self.accepted else REJECTED

    @property
    def line(self) -> str:
        """The decision in words."""
        return f"{self.name}/{self.version} is {self.word}: {'; '.join(self.reasons)}"


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
