"""A canary: secrets that a run is given are found in no database, log or file of it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import httpx
import psutil
import pytest

from tests.flows.conftest import DIGITS, MILLSTREAM, Command

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400)]
CANARY = "canary0815"
LEAKY_MODEL = f"""
import os


def build(inputs, num_classes):
    where = "https://me:{CANARY}url@example.org/weights"
    try:
        raise OSError(f"{{where}}: refused {{os.environ['WEIGHTS_TOKEN']}}")
    except OSError as error:
        raise ValueError(f"{{os.environ['MLFLOW_TRACKING_URI']}} and {{where}}") from error
"""


@pytest.fixture
def mlflow_port(tmp_path: Path) -> Iterator[int]:
    """An MLflow server, whose database and artifacts lie in tmp_path."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen(
            [
                *(Path(sys.executable).with_name("mlflow"), "server", "--port", str(port), "--workers", "1"),
                *("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"),
                *("--artifacts-destination", tmp_path / "mlartifacts"),
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
            time.sleep(0.2)
        yield port
    finally:
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            child.kill()
        process.wait()


def test_no_secret_of_a_run_is_found_anywhere(mlflow_port: int, tmp_path: Path) -> None:
    class Secretive(Command):
        settings: ClassVar[dict[str, str]] = {
            "MLFLOW_TRACKING_URI": f"http://me:{CANARY}uri@127.0.0.1:{mlflow_port}",
            "WEIGHTS_TOKEN": f"{CANARY}token",
        }

    millstream = Secretive(tmp_path / "workspace")
    assert MILLSTREAM.is_file()
    good = millstream("run", DIGITS, "train.total=1 epochs", "train.optimizer.schedule.kind=constant")
    assert "registered" in good.stdout
    (tmp_path / "leaky_model.py").write_text(LEAKY_MODEL)
    leaky = ("model.build=leaky_model:build", "model.args={}", f"model.folder={tmp_path}")
    broken = millstream("run", DIGITS, *leaky, code=1)
    assert "ValueError: http://***@127.0.0.1" in broken.stderr
    refused = [
        millstream("run", DIGITS, f"tracking.uri=http://me:{CANARY}argv@127.0.0.1", code=2),
        millstream(
            *("run", DIGITS, "data.source.kind=table", f"data.source.path=https://me:{CANARY}path@127.0.0.1/a.csv"),
            code=2,
        ),
    ]
    (tmp_path / "leaky_model.py").unlink()

    assert (tmp_path / "prefect" / "prefect.db").is_file()
    assert list((tmp_path / "workspace" / "runs").glob("*/logs/train.log"))
    said = "".join(done.stdout + done.stderr for done in (good, broken, *refused))
    assert CANARY not in said
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in files if CANARY.encode() in file.read_bytes()] == []


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False
