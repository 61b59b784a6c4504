"""The backlog: unfinished runs, each with the command that goes on, and who holds the devices."""

import json
import os
import socket
import subprocess
import sys

import pytest

from tasks.files import lock
from tasks.host.backlog import backlog_findings
from tasks.host.finding import Finding
from tasks.runs import STATE, open_run


@pytest.fixture
def run(tmp_path, digits):
    """A run that was opened and closed unfinished, in a workspace of its own."""
    with open_run(tmp_path, digits.config, data_digest="0", code_digest="0") as run:
        pass
    return run


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_no_unfinished_run_is_said(tmp_path):
    assert list(backlog_findings(tmp_path / "workspace", tmp_path / "locks")) == [
        Finding(name="runs", status="ok", found="none is unfinished")
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("failed", "failed, not finished"),
        ("killed", "killed, not finished"),
        ("running", "died; MLflow calls it RUNNING until it is gone on with"),
    ],
)
def test_interrupted_run_names_the_command_that_goes_on(run, tmp_path, status, found):
    run.update(status=status)
    [finding] = backlog_findings(tmp_path, tmp_path / "locks")
    assert (finding.name, finding.status) == (f"run {run.id}", "warning")
    assert found in finding.found
    assert finding.fix == (
        f"`millstream resume {run.id}` goes on where it stopped; to give it up, delete {run.directory}"
    )


def test_run_that_goes_on_is_well_and_a_lock_without_its_process_is_not(run, tmp_path):
    run.update(status="running", pid=os.getpid(), host=socket.gethostname())
    with lock(run.directory / "lock"):
        [finding] = backlog_findings(tmp_path, tmp_path / "locks")
        assert (finding.status, finding.found) == (
            "ok",
            f"is being carried out by process {os.getpid()} of {socket.gethostname()}",
        )
        run.update(pid=dead_pid())
        [finding] = backlog_findings(tmp_path, tmp_path / "locks")
    assert finding.status == "warning"
    assert "is gone, but something of it still holds the lock" in finding.found


def test_many_unfinished_runs_are_counted(run, tmp_path):
    state = run.state()
    for number in range(6):
        copy = tmp_path / "runs" / f"{run.id}-{number}" / STATE
        copy.parent.mkdir()
        state.model_copy(update={"id": copy.parent.name}).write(copy)
    *_, last = backlog_findings(tmp_path, tmp_path / "locks")
    assert last.found == "2 more are not finished"


def test_damaged_state_is_a_problem(run, tmp_path):
    (run.directory / STATE).write_text("{")
    [finding] = backlog_findings(tmp_path, tmp_path / "locks")
    assert (finding.status, finding.name) == ("problem", "runs")
    assert f"{STATE}: no readable RunState" in finding.found


def test_holder_of_a_device_is_named(tmp_path):
    locks = tmp_path / "locks"
    with lock(locks / "gpu-0.lock"):
        (locks / "gpu-0.json").write_text(json.dumps({"run": "digits-1", "pid": os.getpid()}))
        _, device = backlog_findings(tmp_path / "workspace", locks)
        assert device == Finding(
            name="device gpu-0", status="ok", found=f"held by run digits-1 (process {os.getpid()})"
        )
        (locks / "gpu-0.json").write_text(json.dumps({"run": "digits-1", "pid": dead_pid()}))
        _, device = backlog_findings(tmp_path / "workspace", locks)
        assert device.status == "warning"
    assert len(list(backlog_findings(tmp_path / "workspace", locks))) == 1
