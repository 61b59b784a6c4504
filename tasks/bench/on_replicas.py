"""On replicas: a config on another number of replicas, and a call of a bench's side with it in a process of its own."""

from pathlib import Path
from typing import Any

from tasks.config import Config, build_config
from tasks.distribution import Mirrored
from tasks.workers import launch


def config_on(config: Config, num_replicas: int, **changes: dict[str, Any]) -> Config:
    """Returns the config mirrored on so many replicas; `changes` are fields of its groups, by group."""
    tree = config.model_dump(mode="json")
    mirrored = {key: value for key, value in tree["distribute"].items() if key in Mirrored.model_fields}
    tree["distribute"] = {**mirrored, "kind": "mirrored", "num_replicas": num_replicas}
    for group, fields in changes.items():
        tree[group] |= fields
    return build_config(tree)


def call_side(function: str, arguments: dict[str, Any], config: Config, log: Path) -> dict[str, Any]:
    """Returns what a side ('module:name') returned, within the config's limits of silence; raises as `launch.call`."""
    return launch.call(
        function,
        arguments,
        log=log,
        hang_timeout_seconds=config.distribute.hang_timeout_seconds,
        slow_phase_factor=config.distribute.slow_phase_factor,
    )
