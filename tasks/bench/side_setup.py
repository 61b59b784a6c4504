"""The setup of a bench's side: a config's training, in the process that is to measure it."""

from pathlib import Path
from typing import Any

from tasks.config import Config, build_config
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.setup import Setup, set_up
from tasks.workers.child import progress


def set_up_side(config: dict[str, Any], shards: dict[str, Any], folder: str) -> tuple[Setup, Config]:
    """Returns the parts of a training of config and shards, given as JSON, whose run would lie in `folder`; once in a
    process.
    """
    progress("start")
    resolved = build_config(config)
    return set_up(Run(Path(folder) / "run", resolved), Shards.model_validate(shards)), resolved
