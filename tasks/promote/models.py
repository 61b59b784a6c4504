"""The models: every version that the registry has of a name, with what it is known by."""

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError
from tasks.promote.fetched import open_registry, suggestion
from tasks.promote.promotion import SERVING_TAG
from tasks.promote.record import ModelVersion
from tasks.promote.registered import DATA_TAG, FIGURE_TAG, RUN_TAG, versions_by_alias
from tasks.track.client import answering, default_uri, is_outage, without_password
from tasks.track.provenance import COMMIT_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion as Registered


def list_models(name: str, workspace: Path) -> list[ModelVersion]:
    """Returns the versions of a registered model, newest first.

    Raises ConfigError if the registry has no such model, TrackingError if MLflow does not answer.
    """
    uri = default_uri(workspace)
    with answering(name, uri):
        client = open_registry(name, uri)
        versions = list(client.search_model_versions(f"name = '{name}'", order_by=["version_number DESC"]))
        if not versions:
            raise ConfigError(f"{name}: {without_password(uri)} has no such model; {suggestion(client, name)}")
        # The aliases stand with the model and the version, not with what a search finds.
        names: dict[int, list[str]] = defaultdict(list)
        for alias, number in sorted(versions_by_alias(client, name).items()):
            names[number].append(alias)
        return [_known(client, version, tuple(names[int(version.version)])) for version in versions]


def _known(client: "MlflowClient", version: "Registered", aliases: tuple[str, ...]) -> ModelVersion:
    registered = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
    return ModelVersion(
        name=version.name,
        version=int(version.version),
        aliases=aliases,
        run_id=version.tags.get(RUN_TAG),
        registered_at=registered.isoformat(timespec="seconds"),
        figures={
            tag.removeprefix(FIGURE_TAG): float(value)
            for tag, value in version.tags.items()
            if tag.startswith(FIGURE_TAG)
        },
        data_digest=version.tags.get(DATA_TAG),
        commit=_commit(client, version.run_id),
        serving=version.tags.get(SERVING_TAG),
    )


def _commit(client: "MlflowClient", mlflow_run_id: str) -> str | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(mlflow_run_id).data.tags.get(COMMIT_TAG)
    except MlflowException as error:
        if is_outage(error):
            raise
        return None  # the run was deleted, the model stays
