"""The lineage: from what is served to the run, commit, config, data and environment that made it, and back."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ConfigError, DataError, RunError
from tasks.files import Record
from tasks.promote.fetched import find_version, open_registry, parse_reference
from tasks.promote.record import Promotion
from tasks.promote.registered import DIGEST_TAG, versions_by_alias
from tasks.promote.serving_directory import history, serving_directory
from tasks.track.client import answering, default_uri
from tasks.track.contents import REPRODUCES_TAG
from tasks.track.recorded import DIGEST, Recorded, find_by_digest, find_recorded, runs_with

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SERVED = re.compile(r"serving/(?P<name>[^./][^/]*)/(?P<number>[0-9]+)")


class Descendant(Record):
    """A version of a registered model that came of a run."""

    name: str
    version: int
    aliases: tuple[str, ...]
    digest: str | None
    """ExportManifest.digest of the SavedModel; None if it was not registered by us."""
    registered_at: str
    """Time in UTC, ISO 8601."""
    served: tuple[Promotion, ...]
    """Each time that it was put into the serving directory, oldest first."""


class Lineage(Record):
    """A run, where it comes from and what came of it."""

    reference: str
    """What was asked for."""
    run: Recorded
    versions: tuple[Descendant, ...]
    """Newest first."""
    reproductions: tuple[str, ...]
    """Ids of the runs that repeat it, newest first."""


def find_lineages(reference: str, workspace: Path) -> tuple[Lineage, ...]:
    """Returns the lineage of NAME, NAME@alias, NAME/version, serving/NAME/number, or a run's id, ours or MLflow's.

    Of a data digest, a commit, a code digest or a key, or at least 7 letters that one begins with, the lineage of each
    run that has it, newest first. Raises ConfigError, DataError or RunError, with what there is, if there is no such
    thing; TrackingError if MLflow does not answer.
    """
    uri = default_uri(workspace)
    with answering(reference, uri):
        client = open_registry(reference, uri)
        by_digest = find_by_digest(client, reference, uri) if DIGEST.fullmatch(reference) else ()
        return tuple(
            Lineage(
                reference=reference,
                run=run,
                versions=_descendants(client, run.mlflow_run_id, workspace),
                reproductions=runs_with(client, REPRODUCES_TAG, run.run_id),
            )
            for run in by_digest or (find_origin(client, reference, workspace, uri),)
        )


def find_origin(client: "MlflowClient", reference: str, workspace: Path, uri: str) -> Recorded:
    """Returns what MLflow holds of the run of NAME, NAME@alias, NAME/version, serving/NAME/number or a run's id.

    Raises ConfigError, DataError or RunError, with what there is, if there is no such thing.
    """
    served = _SERVED.fullmatch(reference)
    if served is None:
        try:
            return find_recorded(client, reference, uri)
        except RunError:
            name, alias, number = parse_reference(reference)
            if not (alias or number or client.search_registered_models(f"name = '{name}'")):
                raise
    version = find_version(client, reference if served is None else _version_served(served, workspace), uri)
    try:
        return find_recorded(client, str(version.run_id), uri)
    except RunError as error:
        raise DataError(f"{version.name}/{version.version}: the MLflow run that made it is gone: {error}") from None


def _version_served(served: re.Match[str], workspace: Path) -> str:
    """Returns NAME/version of what was served under a number."""
    name, number = served["name"], int(served["number"])
    changes = history(serving_directory(workspace, name))
    for change in changes:
        if change.number == number:
            return f"{name}/{change.version}"
    raise ConfigError(
        f"serving/{name}/{number}: nothing was served under this number in {workspace}; there were "
        f"{', '.join(str(change.number) for change in changes) or 'none'}"
    )


def _descendants(client: "MlflowClient", mlflow_run_id: str, workspace: Path) -> tuple[Descendant, ...]:
    versions = client.search_model_versions(f"run_id = '{mlflow_run_id}'")
    aliases = {name: versions_by_alias(client, name) for name in {version.name for version in versions}}
    changes = {name: history(serving_directory(workspace, name)) for name in aliases}
    found = [
        Descendant(
            name=version.name,
            version=int(version.version),
            aliases=tuple(
                sorted(alias for alias, number in aliases[version.name].items() if number == int(version.version))
            ),
            digest=version.tags.get(DIGEST_TAG),
            registered_at=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC).isoformat(timespec="seconds"),
            served=tuple(change for change in changes[version.name] if change.version == int(version.version)),
        )
        for version in versions
    ]
    return tuple(sorted(found, key=lambda each: (each.name, -each.version)))
