"""The download task: the door of this room and its policy."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.config import Config
from tasks.download import download as room
from tasks.download.record import RawData
from tasks.errors import needs_the_user


@task(
    name="download",
    retries=3,
    retry_delay_seconds=[1, 10, 60],
    # What a user has to mend is not mended by waiting.
    retry_condition_fn=lambda task, task_run, state: not needs_the_user(state.data),
    timeout_seconds=6 * 3600,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def download(config: Config, workspace: Path) -> RawData:
    """Returns the source of `config.data` on local disk."""
    return room.download(config.data, workspace)
