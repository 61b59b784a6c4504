"""The prepare task: the door of this room and its policy."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.config import Config
from tasks.download.record import RawData
from tasks.errors import needs_the_user
from tasks.prepare import prepare as room
from tasks.prepare.manifest import Shards


@task(
    name="prepare",
    retries=2,
    retry_delay_seconds=[1, 10],
    # What a user has to mend is not mended by waiting.
    retry_condition_fn=lambda task, task_run, state: not needs_the_user(state.data),
    timeout_seconds=24 * 3600,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def prepare(config: Config, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards of `config.data`, made from `raw`."""
    return room.prepare(config.name, config.data, raw, workspace)
