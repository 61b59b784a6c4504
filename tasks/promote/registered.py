"""Registered: the runs of ours whose models the MLflow registry holds."""

from collections.abc import Callable, Iterator
from typing import Any

from tasks.errors import TrackingError
from tasks.files import Record
from tasks.track.client import is_missing, is_outage, open_client, without_password

# Of a model version.
RUN_TAG, DIGEST_TAG, MANIFEST_DIGEST_TAG = "millstream.run_id", "millstream.digest", "millstream.manifest_digest"
DATA_TAG, FIGURE_TAG = "millstream.data_digest", "eval."


class Registered(Record):
    """Ids of our runs, by what the registry says of their models."""

    versions: frozenset[str]
    """A version of a model is of the run."""
    aliased: frozenset[str]
    """An alias, such as champion, names such a version."""


def registered_runs(uri: str) -> Registered:
    """Returns the runs that the registry at `uri` names; raises TrackingError if it is not there or does not answer."""
    from mlflow.exceptions import MlflowException

    if is_missing(uri):
        raise TrackingError(f"{uri}: is not there")  # where an empty one would be made
    try:
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
    except (MlflowException, OSError) as error:
        if not is_outage(error):
            raise
        raise TrackingError(f"{without_password(uri)}: does not answer ({error})") from error
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
