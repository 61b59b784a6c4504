"""Outages of a real MLflow server: down for a whole run, killed in the middle of one; each point arrives once."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from mlflow import MlflowClient

from tasks import events
from tasks.runs import Run
from tasks.track.tracker import tracked
from tests.track.finished_runs import eval_report, train_result

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
BIN = Path(sys.executable).parent
NUM_POINTS = 1500  # more than one call takes


class Server:
    """An MLflow server on a port of its own, to be started and killed."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url, self._folder = f"http://127.0.0.1:{self.port}", folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._folder / "server.log", "a") as log:
            self._process = subprocess.Popen(
                [
                    *(BIN / "mlflow", "server", "--port", str(self.port), "--workers", "1"),
                    *("--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"),
                    *("--artifacts-destination", self._folder / "mlartifacts"),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, (self._folder / "server.log").read_text()
            time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            for process in [*psutil.Process(self._process.pid).children(recursive=True), self._process]:
                process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that is not started yet."""
    server = Server(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    yield server
    server.kill()


def test_down_for_the_whole_run_then_synced_every_point_arrives_once(server: Server, digits: Any) -> None:
    run = digits.run()
    with tracked(run, flush_seconds=1) as tracker:
        tracker.log_shards(digits.shards)
        for step in range(NUM_POINTS):
            events.append(run.events, {"loss": 1 / (1 + step)}, step=step)
        tracker.log_training(train_result(run))
        tracker.log_report(eval_report(run))
    run.update(status="finished")
    assert "does not take it" in _sync(run, code=1).stderr

    server.start()
    (synced,) = json.loads(_sync(run, "--json").stdout)
    assert synced["sent"]["metrics"] == NUM_POINTS + 5 + 2 + 3
    assert "nothing to send" in _sync(run).stderr
    found = MlflowClient(server.url).get_run(run.state().mlflow_run_id)
    assert found.info.status == "FINISHED"
    assert found.data.params["num_replicas"] == "2"
    assert _loss(server, run) == [(step, 1 / (1 + step)) for step in range(NUM_POINTS)]
    names = {item.path for item in MlflowClient(server.url).list_artifacts(found.info.run_id, "report")}
    assert names == {"report/report.json"}


def test_killed_and_started_again_in_the_middle_every_point_arrives_once(server: Server, digits: Any) -> None:
    server.start()
    run = digits.run()
    with tracked(run, flush_seconds=60) as tracker:
        tracker.mlflow_run_id()
        for step in range(NUM_POINTS):
            if step == 500:
                server.kill()
            if step == 1000:
                server.start()
            events.append(run.events, {"loss": 1 / (1 + step)}, step=step)
            time.sleep(0.002)
    assert _loss(server, run) == [(step, 1 / (1 + step)) for step in range(NUM_POINTS)]
    assert MlflowClient(server.url).get_run(run.state().mlflow_run_id).info.status == "FINISHED"


def _loss(server: Server, run: Run) -> list[tuple[int, float]]:
    history = MlflowClient(server.url).get_metric_history(run.state().mlflow_run_id, "loss")
    return [(point.step, point.value) for point in history]


def _sync(run: Run, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [BIN / "millstream", "sync", run.id, *options],
        env={**os.environ, "MILLSTREAM_WORKSPACE": str(run.workspace)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
