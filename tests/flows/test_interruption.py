"""Kill it anywhere: the same command goes on, and nothing is left behind. Long proofs: `make prove`."""

import json
import os
import signal
import time
import zlib
from pathlib import Path

import mlflow
import psutil
import pytest

from tasks import events
from tasks.files import verify
from tasks.runs import Run, find_run, list_runs

DIGITS = Path(__file__).parents[2] / "conf" / "digits.yaml"

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
# Long enough to be interrupted, its steps cut into small calls.
LONG = ("train.total=40 epochs", "train.optimizer.schedule.kind=constant", "train.checkpoint_every=5 steps")


@pytest.fixture
def interrupted(millstream, request):
    """Starts a run of its own key and waits until two epochs are trained: (process, run, overrides, descendants)."""
    seed = zlib.crc32(request.node.name.encode()) % 10**6
    overrides = (*LONG, f"train.seed={seed}")
    process = millstream.start("run", DIGITS, *overrides)
    run = wait_for(lambda: newest_with_events(millstream, seed))
    yield process, run, overrides, psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()


def newest_with_events(millstream, seed) -> Run | None:
    for state in list_runs(millstream.workspace):
        run = find_run(millstream.workspace, state.id)
        if run.config.train.seed == seed and len(events.history(run.events).get("loss", {})) >= 2:
            return run
    return None


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{condition} did not come true within {seconds} s")


def alive_after(seconds, processes):
    """Returns those of the processes that still run; one that only its new parent has not yet waited for does not."""

    def runs(process):
        try:
            return process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def test_kill_9_of_the_flow_leaves_no_child_and_the_same_command_goes_on(millstream, interrupted):
    process, run, overrides, descendants = interrupted
    assert len(descendants) >= 2, "the workers' server and the training child"
    process.kill()
    process.communicate()
    assert alive_after(5, descendants) == []

    outcome = json.loads(millstream("run", DIGITS, *overrides, "--json").stdout)
    assert outcome["run_id"] == run.id
    assert outcome["trained"]["resumed_from_step"] >= 46
    assert run.state().status == "finished"
    client = mlflow.MlflowClient(outcome["tracking_uri"])
    mlflow_run_id = run.state().mlflow_run_id
    assert client.get_run(mlflow_run_id).info.status == "FINISHED"
    points = client.get_metric_history(mlflow_run_id, "loss")
    assert [point.step for point in points] == [23 * epoch for epoch in range(1, 41)]


@pytest.mark.parametrize("seconds", [1, 2, 3, 4, 6])
def test_kill_9_while_the_command_starts_leaves_no_child(millstream, seconds):
    process = millstream.start("run", DIGITS, *LONG, "train.seed=5")
    time.sleep(seconds)
    descendants = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert alive_after(10, descendants) == []
    process.communicate()


def test_a_prefect_server_that_does_not_answer_is_named_before_any_work(millstream, monkeypatch):
    monkeypatch.setattr(type(millstream), "settings", {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    refused = millstream("run", DIGITS, code=2)
    assert "PREFECT_API_URL=http://127.0.0.1:9/api: no Prefect server answers" in refused.stderr


@pytest.mark.parametrize(
    "interrupt",
    [lambda pid: os.killpg(pid, signal.SIGINT), lambda pid: os.kill(pid, signal.SIGTERM)],
    ids=["ctrl-c in a terminal", "sigterm"],
)
def test_an_interrupt_leaves_a_checkpoint_and_the_truth(millstream, interrupted, interrupt):
    process, run, _, descendants = interrupted
    interrupt(process.pid)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on where it stopped" in errors
    assert "Traceback" not in errors
    assert alive_after(5, descendants) == []
    state = run.state()
    assert state.status == "killed"
    steps = [int(path.name) for path in run.checkpoints.iterdir() if path.name.isdigit()]
    assert max(steps) >= 46
    client = mlflow.MlflowClient(f"sqlite:///{millstream.workspace}/mlflow.db")
    assert client.get_run(state.mlflow_run_id).info.status == "KILLED"


def test_the_same_config_at_the_same_time_is_refused_with_host_and_process(millstream, interrupted):
    process, run, overrides, _ = interrupted
    refused = millstream("run", DIGITS, *overrides, code=1)
    assert f"run {run.id} with this very config is being carried out" in refused.stderr
    assert f"by process {process.pid}" in refused.stderr


def test_resume_goes_on_from_a_finished_run_s_end_in_its_mlflow_run_and_beside_its_model(millstream):
    short = ("train.total=2 epochs", "train.optimizer.schedule.kind=constant", "train.seed=7")
    first = millstream.outcome(*short)
    refused = millstream("resume", first["run_id"], code=1)
    assert "is finished and is never trained again" in refused.stderr

    second = json.loads(millstream("resume", first["run_id"], "train.total=4 epochs", "--json").stdout)
    assert (second["run_id"], second["trained"]["resumed_from_step"]) == (first["run_id"], 46)
    assert second["trained"]["num_steps"] == 92
    run = find_run(millstream.workspace, first["run_id"])
    assert (run.state().status, run.state().totals) == ("finished", ("2 epochs",))

    client = mlflow.MlflowClient(second["tracking_uri"])
    found = client.get_run(run.state().mlflow_run_id)
    assert found.info.status == "FINISHED"
    assert (found.data.params["train.total"], found.data.tags["changed.train.total"]) == ("2 epochs", "4 epochs")
    points = client.get_metric_history(found.info.run_id, "loss")
    assert [point.step for point in points] == [23, 46, 69, 92]
    assert found.data.metrics["eval/loss"] == second["report"]["figures"]["loss"]

    models = [Path(outcome["exported"]["directory"]) for outcome in (first, second)]
    assert [model.name for model in models] == [run.id, f"{run.id}-4-epochs"]
    for model in models:
        verify(model)
    assert second["registered"]["version"] == first["registered"]["version"] + 1
    assert (run.directory / "report-2-epochs").is_dir()
