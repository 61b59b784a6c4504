"""The tracker: one MLflow run for a pipeline run, complete, once, and never in the way."""

import json
import logging
import math
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks import events
from tasks.config import build_config
from tasks.errors import TrackingError
from tasks.evaluate.report import ClassFigures, EvalReport
from tasks.export.manifest import ExportManifest, Latency
from tasks.files import atomic_directory
from tasks.models.build import code_digest
from tasks.runs import Run
from tasks.track.client import tracking_uri
from tasks.track.tracker import tracked
from tests.track.finished_runs import train_result


@pytest.fixture
def run(digits: Any, request: pytest.FixtureRequest) -> Run:
    """A new run in the workspace, and so the MLflow database, that all tests share."""
    return digits.run(f"tracking.experiment={request.node.name}")


def test_all_points_arrive(run: Run) -> None:
    with tracked(run):
        for step in range(2100):  # more than MLflow takes in one call
            events.append(run.events, {"loss": 1 / (1 + step)}, step=step)
        events.append(run.events, {"val_loss": math.nan}, step=2100)
    assert _points(run, "loss") == [(step, 1 / (1 + step)) for step in range(2100)]
    [(step, value)] = _points(run, "val_loss")
    assert step == 2100
    assert math.isnan(value)


def test_a_point_has_the_time_at_which_it_was_measured(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    with tracked(run):
        pass
    [point] = _client(run).get_metric_history(run.state().mlflow_run_id, "loss")
    assert point.timestamp == json.loads(run.events.read_text())["time_ms"]


def test_steps_that_a_resumed_training_repeats_arrive_once(run: Run) -> None:
    with tracked(run):
        for step in (10, 20, 30):
            events.append(run.events, {"loss": float(step)}, step=step)
    with tracked(run):
        for step in (20, 30, 40):
            events.append(run.events, {"loss": step + 0.5}, step=step)
    assert _points(run, "loss") == [(10, 10.0), (20, 20.0), (30, 30.0), (40, 40.5)]


def test_points_arrive_while_the_run_goes_on(run: Run) -> None:
    with tracked(run) as tracker:
        tracker.mlflow_run_id()
        events.append(run.events, {"loss": 1.0}, step=1)
        deadline = time.monotonic() + 20
        while not _points(run, "loss"):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_run_is_running_and_then_finished(run: Run) -> None:
    with tracked(run):
        _wait_until_running(run)
    assert _found(run).info.status == "FINISHED"
    assert _found(run).info.end_time is not None


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")]
)
def test_status_says_how_a_run_broke_off(run: Run, error: type[BaseException], status: str) -> None:
    with pytest.raises(error), tracked(run):
        raise error
    assert _found(run).info.status == status
    assert _found(run).info.end_time is not None


def test_a_resumed_run_goes_on_in_the_same_mlflow_run(run: Run) -> None:
    with pytest.raises(KeyboardInterrupt), tracked(run):
        raise KeyboardInterrupt
    first = run.state().mlflow_run_id
    resumed = Run(run.directory, build_config(run.config.model_dump(mode="json"), ["evaluate.batch_size=7"]))
    with tracked(resumed) as tracker:
        assert tracker.mlflow_run_id() == first
        _wait_until_running(run)
    found = _found(run)
    assert found.info.status == "FINISHED"
    assert found.data.params["evaluate.batch_size"] == "256"  # MLflow refuses to change it
    assert found.data.tags["changed.evaluate.batch_size"] == "7"
    assert [tag for tag in found.data.tags if tag.startswith("changed.")] == ["changed.evaluate.batch_size"]


def test_a_deleted_mlflow_run_is_replaced_with_all_points(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    with tracked(run):
        pass
    first = run.state().mlflow_run_id
    _client(run).delete_run(first)
    with tracked(run):
        pass
    assert run.state().mlflow_run_id != first
    assert _found(run).data.params["name"] == "digits"
    assert _artifact(run, "config.yaml")
    assert _points(run, "loss") == [(1, 1.0)]


def test_config_code_and_host_are_on_the_run(run: Run) -> None:
    run.update(prefect_flow_run_ids=("first", "second"))
    with tracked(run, tags={"prefect.flow_run_name": "nice-owl"}):
        pass
    found = _found(run)
    params, tags = found.data.params, found.data.tags
    assert params["train.optimizer.schedule.kind"] == "cosine"
    assert params["data.splits.train"] == "0.8"
    assert params["distribute.kind"] == "mirrored"  # operational fields too
    state = run.state()
    assert (tags["millstream.run_id"], tags["millstream.key"]) == (run.id, state.key)
    assert tags["millstream.data_digest"] == state.data_digest
    assert tags["millstream.host"] == socket.gethostname()
    assert tags["millstream.workspace"] == str(run.workspace)
    assert tags["millstream.code_digest"] == code_digest(run.config.model)
    assert tags["millstream.global_batch_size"] == "64"
    assert tags["prefect.flow_run_id"] == "second"
    assert tags["prefect.flow_run_name"] == "nice-owl"
    assert {f"version.{name}" for name in ("python", "tensorflow", "keras", "mlflow", "prefect")} <= tags.keys()
    assert _artifact(run, "config.yaml") == (run.directory / "config.yaml").read_text()
    assert f"tensorflow=={tags['version.tensorflow']}\n" in _artifact(run, "requirements.txt")


def test_what_the_stages_hand_on_is_on_the_run(run: Run, digits: Any) -> None:
    with tracked(run) as tracker:
        tracker.log_shards(digits.shards)
        tracker.log_training(train_result(run))
        tracker.log_report(_report(run))
        tracker.log_export(_exported(run))
    found = _found(run)
    assert found.data.metrics == {
        "data/num_shards": digits.shards.num_shards,
        "data/num_bad": 0,
        **{f"data/num_examples_{split}": number for split, number in digits.shards.num_examples.items()},
        "best_step": 20,
        f"best_{run.config.train.best_metric}": 0.9,
        "eval/accuracy": 0.75,
        "eval/loss": 0.5,
        "eval/num_examples": 4,
        "export/size_bytes": 1000,
        "export/largest_difference": 1e-7,
        "export/latency_p50_ms_batch_1": 0.5,
        "export/latency_p95_ms_batch_1": 0.75,
    }
    assert (found.data.params["num_replicas"], found.data.params["num_parameters"]) == ("2", "1234")
    assert found.data.tags["millstream.num_replicas"] == "2"
    assert found.info.run_name == f"digits-{run.state().key[:6]}-2x32"
    [dataset] = found.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("digits", digits.shards.data_digest[:36])
    assert json.loads(dataset.dataset.source) == {"uri": str(digits.shards.directory)}
    assert _artifact(run, "data/manifest.json") == (digits.shards.directory / "manifest.json").read_text()
    assert _artifact(run, "report/report.json") == "{}"
    assert [file.path for file in _client(run).list_artifacts(found.info.run_id, "report")] == ["report/report.json"]


def test_stages_that_are_logged_again_change_nothing(run: Run, digits: Any) -> None:
    for _ in range(2):
        with tracked(run) as tracker:
            tracker.log_shards(digits.shards)
            tracker.log_training(train_result(run))
    assert _points(run, "data/num_shards") == [(0, digits.shards.num_shards)]
    assert _points(run, "best_step") == [(30, 20)]
    assert len(_found(run).inputs.dataset_inputs) == 1


def test_what_mlflow_refuses_is_reported_and_the_rest_arrives(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with tracked(run, tags={"no;such*name": "x"}) as tracker:
        events.append(run.events, {"no;such*name": 1.0}, step=1)
        tracker.mlflow_run_id()
        deadline = time.monotonic() + 20
        while "metrics of run" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        events.append(run.events, {"loss": 1.0}, step=2)
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        f"tracking: metrics of run {run.id} left out",
        f"tracking: tags of run {run.id} left out",
    ]
    assert _points(run, "loss") == [(2, 1.0)]
    assert _found(run).data.params["name"] == "digits"
    assert _found(run).info.status == "FINISHED"


def test_a_server_that_is_gone_does_not_disturb_the_run(digits: Any, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:  # nobody listens on its port afterwards
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = digits.run(f"tracking.uri=http://127.0.0.1:{port}")
    with tracked(run, flush_seconds=0.5) as tracker:
        tracker.log_shards(digits.shards)
        events.append(run.events, {"loss": 1.0}, step=1)
        with pytest.raises(TrackingError, match=f"127.0.0.1:{port} has not answered for 0.1 s"):
            tracker.mlflow_run_id(timeout_seconds=0.1)
    assert tracker.url == ""
    assert run.state().mlflow_run_id == ""
    [message] = [record.message for record in caplog.records if "did not take all" in record.message]
    assert run.id in message
    assert (
        "not sent: metrics, tags, params, config.yaml, requirements.txt, dataset, data/manifest.json, name, status"
        in message
    )
    assert f"all of it is in {run.directory}, and `millstream sync {run.id}` sends it" in message


def test_the_link_opens_the_run_in_the_ui_for_training(run: Run) -> None:
    with tracked(run) as tracker:
        tracker.mlflow_run_id()
    info = _found(run).info
    assert tracker.url == (
        f"http://127.0.0.1:5000/#/experiments/{info.experiment_id}/runs/{info.run_id}?workflowType=machine_learning"
    )


def test_artifacts_stay_in_the_workspace(run: Run) -> None:
    with tracked(run):
        pass
    assert Path(_found(run).info.artifact_uri).is_relative_to(run.workspace / "mlartifacts")


def _client(run: Run) -> MlflowClient:
    return MlflowClient(tracking_uri(run))


def _found(run: Run) -> Any:
    return _client(run).get_run(run.state().mlflow_run_id)


def _points(run: Run, metric: str) -> list[tuple[int, float]]:
    history = _client(run).get_metric_history(run.state().mlflow_run_id, metric)
    return [(point.step, point.value) for point in history]


def _wait_until_running(run: Run) -> None:
    deadline = time.monotonic() + 30
    while not run.state().mlflow_run_id or _found(run).info.status != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _artifact(run: Run, path: str) -> str:
    found = _found(run)
    return (Path(found.info.artifact_uri) / path).read_text()


def _report(run: Run) -> EvalReport:
    with atomic_directory(run.report) as incomplete:
        (incomplete / "report.json").write_text("{}")
        (incomplete / "predictions.parquet").write_bytes(b"large")
    return EvalReport(
        checkpoint=run.checkpoints / "20",
        split="test",
        num_examples=4,
        settings=run.config.evaluate,
        figures={"accuracy": 0.75, "loss": 0.5},
        headline="accuracy",
        classes=(ClassFigures(name="0", num_examples=4, precision=1.0, recall=0.75, f1=0.86),),
        directory=run.report,
    )


def _exported(run: Run) -> ExportManifest:
    return ExportManifest(
        directory=run.model,
        step=20,
        digest="d" * 64,
        size_bytes=1000,
        formats=("savedmodel",),
        signatures=("serving_default",),
        num_warmup_requests=0,
        latencies=(Latency(batch_size=1, num_calls=50, p50_ms=0.5, p95_ms=0.75),),
        num_parity_examples=4,
        largest_difference=1e-7,
        label_map=("0",),
        inputs={},
        outputs={},
    )
