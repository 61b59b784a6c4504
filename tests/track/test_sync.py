"""Sync: what an outage or a kill left unsent arrives afterwards, once."""

import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks import events
from tasks.errors import RunError
from tasks.files import lock
from tasks.runs import Run
from tasks.track.sync import sync, tracked_runs
from tasks.track.tracker import tracked
from tests.track.finished_runs import eval_report, log_epochs, train_result


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The address of a server that is not there: its port is taken, but nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def run(digits: Any, monkeypatch: pytest.MonkeyPatch, nowhere: str, request: pytest.FixtureRequest) -> Run:
    """A run that was trained and evaluated while MLflow did not answer."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", nowhere)
    run: Run = digits.run(f"tracking.experiment={request.node.name}")
    with tracked(run, tags={"prefect.flow_run_name": "nice-owl"}, flush_seconds=0.1) as tracker:
        tracker.log_shards(digits.shards)
        log_epochs(run, val_accuracy=[0.5, 0.8, 0.9])
        tracker.log_training(train_result(run))
        tracker.log_report(eval_report(run))
    assert run.state().mlflow_run_id == ""
    return run


@pytest.fixture
def client(run: Run, digits: Any, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """MLflow, which now answers."""
    uri = f"sqlite:///{digits.workspace / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return MlflowClient(uri)


def test_all_that_the_tracker_would_have_sent_arrives(run: Run, client: MlflowClient, digits: Any) -> None:
    run.update(status="finished")
    (synced,) = sync([run], named=True)
    assert (synced.run_id, synced.problem) == (run.id, "")
    assert synced.sent["metrics"] == 3 * 5 + 5 + 2 + 3  # epochs, data/*, best, eval/*
    found = client.get_run(run.state().mlflow_run_id)
    assert synced.url.endswith(f"/runs/{found.info.run_id}?workflowType=machine_learning")
    assert found.info.run_name == f"digits-{run.state().key[:6]}-2x32"
    assert found.info.status == "FINISHED"
    assert found.data.params["num_replicas"] == "2"
    assert found.data.tags["prefect.flow_run_name"] == "nice-owl"
    assert found.data.metrics["eval/accuracy"] == 0.75
    assert [item.dataset.digest for item in found.inputs.dataset_inputs] == [digits.shards.data_digest]
    names = {
        item.path for folder in ("", "data", "report") for item in client.list_artifacts(found.info.run_id, folder)
    }
    assert names == {"config.yaml", "requirements.txt", "data", "report", "data/manifest.json", "report/report.json"}


def test_nothing_is_sent_twice(run: Run, client: MlflowClient) -> None:
    run.update(status="failed")
    assert len(list(sync([run], named=True))) == 1
    assert list(sync([run], named=True)) == []
    events.append(run.events, {"val_accuracy": 0.95}, step=40)
    (again,) = sync([run], named=True)
    assert again.sent == {"metrics": 1}
    history = client.get_metric_history(run.state().mlflow_run_id, "val_accuracy")
    assert [(point.step, point.value) for point in history] == [(10, 0.5), (20, 0.8), (30, 0.9), (40, 0.95)]
    assert len(client.search_runs([client.get_run(run.state().mlflow_run_id).info.experiment_id])) == 1


@pytest.mark.parametrize(
    ("state", "status"),
    [("finished", "FINISHED"), ("failed", "FAILED"), ("killed", "KILLED"), ("running", "KILLED"), ("open", "FINISHED")],
)
def test_mlflow_shows_how_and_when_a_run_ended(run: Run, client: MlflowClient, state: str, status: str) -> None:
    run.update(status=state)
    ended_ms = time.time_ns() // 1_000_000
    time.sleep(0.2)
    list(sync([run], named=True))
    info = client.get_run(run.state().mlflow_run_id).info
    assert info.status == status
    assert abs(info.end_time - ended_ms) < 150
    assert info.start_time == datetime.fromisoformat(run.state().created).timestamp() * 1000


def test_what_a_killed_tracker_left_running_is_killed(run: Run, client: MlflowClient) -> None:
    with pytest.raises(ValueError, match="broke"), tracked(run):
        raise ValueError("broke")
    mlflow_run_id = run.state().mlflow_run_id
    client.update_run(mlflow_run_id, status="RUNNING")
    run.update(status="running")
    (synced,) = sync([run], named=True)
    assert synced.sent == {"status": 1}
    assert client.get_run(mlflow_run_id).info.status == "KILLED"


def test_without_an_answer_all_stays_and_it_is_said(run: Run, nowhere: str) -> None:
    other = Run(run.directory, run.config)
    first, second = sync([run, other])
    assert first.sent == second.sent == {}
    assert first.problem == second.problem
    assert first.problem.startswith(f"{nowhere} does not take it: ")
    assert first.url == ""


def test_a_run_that_is_being_carried_out_is_left_to_its_own_tracker(run: Run, client: MlflowClient) -> None:
    with lock(run.directory / "lock"):
        assert list(sync([run])) == []
        with pytest.raises(RunError, match=f"run {run.id} is being carried out on .* by process"):
            list(sync([run], named=True))
    assert run.state().mlflow_run_id == ""


def test_only_runs_that_were_tracked_are_synced_unasked(run: Run, digits: Any) -> None:
    alone = digits.run()
    assert alone.id not in (ids := [each.id for each in tracked_runs(Path(digits.workspace))])
    assert run.id in ids
