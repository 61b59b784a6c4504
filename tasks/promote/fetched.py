"""The fetched model: a version in the MLflow registry, copied from there and found to be what was registered."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError, DataError
from tasks.export.manifest import EXPORT, ExportManifest, digest_model
from tasks.files import digest_file
from tasks.promote.record import RegisteredModel
from tasks.promote.registered import DIGEST_TAG, MANIFEST_DIGEST_TAG
from tasks.track.client import answering, first_line, is_missing, is_outage, open_client, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_REFERENCE = re.compile(r"(?P<name>[^./:%\"'@][^/:%\"'@]*)(?:@(?P<alias>[^/:@]+)|/(?P<version>[1-9][0-9]*))?")
_MAX_NAMES = 10  # of models that a message lists


def fetch_model(reference: str, uri: str, folder: Path) -> tuple[RegisteredModel, ExportManifest]:
    """Returns the model that NAME, NAME@alias or NAME/version means, and its manifest; NAME is its newest version.

    `directory` of the manifest is the SavedModel as it was copied into `folder`, each file the one that was exported by
    its sha256, which the registry keeps. Raises ConfigError if the registry at `uri` has no such model, DataError if
    it was not registered by us or a file is another, TrackingError if MLflow does not answer.
    """
    import mlflow
    from mlflow.exceptions import MlflowException

    where = without_password(uri)
    with answering(reference, uri):
        client = open_registry(reference, uri)
        version = find_version(client, reference, uri)
        location = f"models:/{version.name}/{version.version}"
        digest = version.tags.get(DIGEST_TAG)
        if digest is None:
            raise DataError(f"{location}: was not registered by millstream, so that no sha256 of its files is known")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            # Not by models:/, for which MLflow asks the registry of the whole process.
            source = client.get_model_version_download_uri(version.name, version.version)
            copied = mlflow.artifacts.download_artifacts(f"{source}/artifacts", dst_path=str(folder), tracking_uri=uri)
        except MlflowException as error:
            if is_outage(error):
                raise
            raise DataError(f"{reference}: its files are not where {where} says ({first_line(error)})") from error
    directories = sorted(Path(copied).iterdir())
    if (
        len(directories) != 1
        or digest_model(directories[0]) != digest
        or digest_file(directories[0] / EXPORT) != version.tags.get(MANIFEST_DIGEST_TAG)
    ):
        raise DataError(
            f"{location}: its files are not those that were registered, by their sha256, and are not loaded; run "
            "`millstream export` and register it anew"
        )
    exported = ExportManifest.read(directories[0] / EXPORT).model_copy(update={"directory": directories[0]})
    return RegisteredModel(name=version.name, version=int(version.version), uri=location, digest=digest), exported


def parse_reference(reference: str) -> tuple[str, str | None, str | None]:
    """Returns name, alias and version of NAME, NAME@alias or NAME/version; raises ConfigError if it is neither."""
    named = _REFERENCE.fullmatch(reference)
    if named is None:
        raise ConfigError(f"{reference!r}: must be NAME, NAME@alias or NAME/version, such as digits@champion")
    return named["name"], named["alias"], named["version"]


def open_registry(reference: str, uri: str) -> "MlflowClient":
    """Returns a client of the registry at `uri`; raises ConfigError if that is a database that is not there."""
    if is_missing(uri):
        raise ConfigError(f"{reference}: nothing is registered yet, {uri} is not there; `millstream run` registers")
    return open_client(uri)


def find_version(client: "MlflowClient", reference: str, uri: str) -> "ModelVersion":
    """Returns the version that NAME, NAME@alias or NAME/version means; raises ConfigError if there is none."""
    from mlflow.exceptions import MlflowException

    name, alias, number = parse_reference(reference)
    try:
        if alias:
            return client.get_model_version_by_alias(name, alias)
        if number:
            return client.get_model_version(name, number)
        versions = client.search_model_versions(f"name = '{name}'", order_by=["version_number DESC"], max_results=1)
    except MlflowException as error:
        if is_outage(error):
            raise
        versions = []
    if not versions:
        raise ConfigError(f"{reference}: {without_password(uri)} has no such model; {suggestion(client, name)}")
    return versions[0]


def suggestion(client: "MlflowClient", name: str) -> str:
    """Returns what could have been meant, for a message."""
    versions = client.search_model_versions(
        f"name = '{name}'", order_by=["version_number DESC"], max_results=_MAX_NAMES
    )
    if versions:
        aliases = "".join(f", {name}@{alias}" for alias in sorted(client.get_registered_model(name).aliases))
        return f"it has {', '.join(f'{name}/{version.version}' for version in versions)}{aliases}"
    models = client.search_registered_models(max_results=_MAX_NAMES)
    return f"it has {', '.join(model.name for model in models) or 'none'}"
