"""The sweep: only what a dead process of this host left RUNNING is ended, and truthfully."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks.files import lock
from tasks.runs import Run
from tasks.track.client import tracking_uri
from tasks.track.contents import HOST_TAG, WORKSPACE_TAG
from tasks.track.sender import last_sign_ms
from tasks.track.tracker import tracked

ROOT = Path(__file__).parents[2]


@pytest.fixture
def experiment(request: pytest.FixtureRequest) -> str:
    """An override that gives a test an experiment of its own."""
    return f"tracking.experiment={request.node.name}"


def test_a_killed_run_is_ended_by_the_next_and_still_goes_on(digits: Any, experiment: str) -> None:
    killed = digits.run(experiment)
    script = f"""
import sys, time
from pathlib import Path
from tasks import events
from tasks.files import lock
from tasks.runs import find_run
from tasks.track.tracker import tracked
run = find_run(Path({str(killed.workspace)!r}), {killed.id!r})
with lock(run.directory / "lock"), tracked(run) as tracker:
    events.append(run.events, {{"loss": 1.0}}, step=1)
    tracker.mlflow_run_id()
    print("tracked", flush=True)
    time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "tracked\n"
        _track(digits.run(experiment))
        assert _status(killed) == "RUNNING"  # its lock is held
        process.send_signal(signal.SIGKILL)
    last_sign = last_sign_ms(killed)
    _track(digits.run(experiment))
    assert _status(killed) == "KILLED"
    assert _client(killed).get_run(killed.state().mlflow_run_id).info.end_time == last_sign
    with tracked(killed) as tracker:
        tracker.mlflow_run_id()
    assert _status(killed) == "FINISHED"


def test_what_is_being_carried_out_or_is_not_ours_is_left(digits: Any, experiment: str) -> None:
    held, elsewhere, gone, dead = [_track(digits.run(experiment)) for _ in range(4)]
    client = _client(held)
    for run in (held, elsewhere, gone, dead):
        client.update_run(run.state().mlflow_run_id, status="RUNNING")
    client.set_tag(elsewhere.state().mlflow_run_id, HOST_TAG, "elsewhere")
    client.set_tag(gone.state().mlflow_run_id, WORKSPACE_TAG, "/nowhere")
    foreign = client.create_run(client.get_run(held.state().mlflow_run_id).info.experiment_id).info.run_id
    with lock(held.directory / "lock"):
        _track(digits.run(experiment))
    assert [_status(run) for run in (held, elsewhere, gone, dead)] == ["RUNNING", "RUNNING", "RUNNING", "KILLED"]
    assert client.get_run(foreign).info.status == "RUNNING"


def test_another_experiment_is_left(digits: Any, experiment: str) -> None:
    other = _track(digits.run(f"{experiment}2"))
    _client(other).update_run(other.state().mlflow_run_id, status="RUNNING")
    _track(digits.run(experiment))
    assert _status(other) == "RUNNING"


def _track(run: Run) -> Run:
    with tracked(run) as tracker:
        tracker.mlflow_run_id()
    return run


def _client(run: Run) -> MlflowClient:
    return MlflowClient(tracking_uri(run))


def _status(run: Run) -> str:
    return str(_client(run).get_run(run.state().mlflow_run_id).info.status)
