"""RegisteredModel: what registration hands on."""

from tasks.files import Record


class RegisteredModel(Record):
    """A version of a model in the MLflow registry."""

    name: str
    version: int
    uri: str
    """What `mlflow.pyfunc.load_model` takes: models:/<name>/<version>."""
    digest: str
    """ExportManifest.digest of the SavedModel in it."""
