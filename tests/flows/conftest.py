"""Fixtures for tests of the command and the flows: the real command, in processes of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "conf" / "digits.yaml"
SHORT = ("train.total=5 epochs", "train.optimizer.schedule.warmup=1 epochs")
MILLSTREAM = Path(sys.executable).with_name("millstream")


@dataclass(frozen=True)
class Command:
    """`millstream` in a workspace and a Prefect home of its own."""

    workspace: Path
    settings: ClassVar[dict[str, str]] = {}
    """Environment variables beyond those."""

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        home = self.workspace.parent / "prefect"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))},
            "MILLSTREAM_WORKSPACE": str(self.workspace),
            "PREFECT_HOME": str(home),
            "MILLSTREAM_LOCKS": str(self.workspace.parent / "locks"),
            **self.settings,
        }
        return subprocess.Popen(
            [MILLSTREAM, *map(str, arguments)],
            env=environment,
            cwd=self.workspace.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a process group of its own, like a command in a terminal
        )

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Returns what the finished command printed; its exit code must be `code`."""
        process = self.start(*arguments)
        output, errors = process.communicate()
        assert process.returncode == code, f"exit {process.returncode}\n{output}\n{errors}"
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def outcome(self, *arguments: str) -> dict:
        """Returns the JSON that a finished `millstream run` printed."""
        return json.loads(self("run", DIGITS, *arguments, "--json").stdout)


@pytest.fixture(scope="session")
def millstream(tmp_path_factory):
    return Command(tmp_path_factory.mktemp("millstream") / "workspace")


@pytest.fixture(scope="session")
def finished(millstream):
    """The outcome of one whole run of the main job, shortened; what it logged is looked at by many tests."""
    return millstream.outcome(*SHORT)
