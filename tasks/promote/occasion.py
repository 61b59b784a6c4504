"""The occasion: whether there is cause to train a model anew, by the data that is there now and the registry."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tasks.config import Config
from tasks.promote.promotion import CHAMPION, SERVING_TAG
from tasks.promote.record import GATE_TAG, REJECTED
from tasks.promote.registered import DATA_TAG, RUN_TAG, versions_by_alias
from tasks.track.client import answering, default_uri, open_client

_SECONDS_PER_DAY = 86400


class Occasion(NamedTuple):
    """Whether to train, and why."""

    is_one: bool
    cause: str


def occasion(config: Config, workspace: Path, data_digest: str) -> Occasion:
    """Returns whether to train on data of this digest: there is no champion, the data are new, or it is too old.

    Data are not new if a model of them was served or rejected by the gate: what was rejected or rolled back would be
    made again. One that was accepted and is not served yet was interrupted, and is gone on with. Raises TrackingError
    if MLflow does not answer.
    """
    name, max_days = config.promote.registered_name or config.name, config.promote.max_champion_age_days
    uri = config.tracking.uri or default_uri(workspace)
    with answering(name, uri):
        client = open_client(uri)
        versions = client.search_model_versions(f"name = '{name}'", order_by=["version_number DESC"])
        champion = versions_by_alias(client, name).get(CHAMPION)
    if champion is None:
        return Occasion(True, f"{name} has no champion yet")
    tried = [
        version.tags.get(RUN_TAG, version.version)
        for version in versions
        if version.tags.get(DATA_TAG) == data_digest
        and (version.tags.get(GATE_TAG) == REJECTED or SERVING_TAG in version.tags)
    ]
    if not tried:
        return Occasion(True, f"the data have changed since {name}/{champion}")
    (created,) = (version.creation_timestamp for version in versions if int(version.version) == champion)
    days = (datetime.now(UTC).timestamp() - created / 1000) / _SECONDS_PER_DAY
    if max_days is not None and days > max_days:
        return Occasion(
            True, f"{name}/{champion} is {days:.1f} days old, over promote.max_champion_age_days={max_days:g}"
        )
    return Occasion(False, f"data unchanged since {tried[0]}")
