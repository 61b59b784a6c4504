"""Artifacts: what a flow run shows in the Prefect UI; a server that is gone or silent is waited for a few seconds only.

By a client of our own: that of the flow, which Prefect's `create_*_artifact` take, waits for minutes.
"""

from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings


def artifact_key(name: str, *what: str) -> str:
    """Returns the key under which the Prefect UI gathers the artifacts of all runs of a name."""
    return "-".join(("millstream", name.replace("_", "-"), *what))


def create_artifact(
    kind: str, key: str, data: Any, *, description: str | None = None, max_tries: int, timeout_seconds: float
) -> UUID:
    """Returns the id of a new artifact of the present flow run; `kind`: markdown, table or progress."""
    flow_run = runtime.flow_run.id
    artifact = ArtifactCreate(
        type=kind, key=key, data=data, description=description, flow_run_id=UUID(flow_run) if flow_run else None
    )
    with _patience(max_tries), _client(timeout_seconds) as client:
        return client.create_artifact(artifact).id


def update_artifact(artifact: UUID, data: Any, *, description: str, max_tries: int, timeout_seconds: float) -> None:
    """Brings an artifact up to date; raises what Prefect does."""
    with _patience(max_tries), _client(timeout_seconds) as client:
        client.update_artifact(artifact, ArtifactUpdate(data=data, description=description))


def _patience(max_tries: int) -> AbstractContextManager[object]:
    return temporary_settings({PREFECT_CLIENT_MAX_RETRIES: max_tries - 1})


def _client(timeout_seconds: float) -> SyncPrefectClient:
    return get_client(sync_client=True, httpx_settings={"timeout": timeout_seconds})
