"""Registered: the runs of ours whose models the MLflow registry holds."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tasks.errors import TrackingError
from tasks.files import Record
from tasks.track.client import answering, is_missing, open_client

if TYPE_CHECKING:
    from mlflow import MlflowClient

# Of a model version.
RUN_TAG, DIGEST_TAG, MANIFEST_DIGEST_TAG = "millstream.run_id", "millstream.digest", "millstream.manifest_digest"
DATA_TAG, FIGURE_TAG = "millstream.data_digest", "eval."


class Registered(Record):
    """Ids of our runs, by what the registry says of their models."""

    versions: frozenset[str]
    """A version of a model is of the run."""
    aliased: frozenset[str]
    """An alias, such as champion, names such a version."""


def versions_by_alias(client: "MlflowClient", name: str) -> dict[str, int]:
    """Returns the version of each alias of a registered model; none if there is no such model."""
    models = client.search_registered_models(f"name = '{name}'")
    return {alias: int(version) for model in models for alias, version in model.aliases.items()}


def registered_runs(uri: str) -> Registered:
    """Returns the runs that the registry at `uri` names; raises TrackingError if it is not there or does not answer."""
    if is_missing(uri):
        raise TrackingError(f"{uri}: is not there")
    with answering("the registered models", uri):
        client = open_client(uri)
        aliases = {
            (model.name, str(version))
            for model in _pages(client.search_registered_models)
            for version in model.aliases.values()
        }
        runs = {
            (version.name, str(version.version)): version.tags[RUN_TAG]
            for version in _pages(client.search_model_versions)
            if RUN_TAG in version.tags
        }
    return Registered(
        versions=frozenset(runs.values()), aliased=frozenset(run for version, run in runs.items() if version in aliases)
    )


def _pages(search: Callable[..., Any]) -> Iterator[Any]:
    token = None
    while True:
        page = search(page_token=token)
        yield from page
        token = page.token
        if not token:
            return
