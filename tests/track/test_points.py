"""Points: what was sent is not read again, whoever died when."""

from pathlib import Path
from typing import Any

import pytest

from tasks import events
from tasks.config import build_config
from tasks.runs import Run
from tasks.track.client import open_client
from tasks.track.points import TRACKED, Points


@pytest.fixture
def run(tmp_path: Path) -> Run:
    directory = tmp_path / "runs" / "a"
    directory.mkdir(parents=True)
    return Run(directory, build_config({"name": "a"}))


def test_nothing_is_read_twice_after_a_commit(run: Run) -> None:
    points = Points(run, "mlflow-run")
    assert points.read() == []
    events.append(run.events, {"loss": 1.0, "accuracy": 0.5}, step=1)
    assert [(point.key, point.step, point.value) for point in points.read()] == [("loss", 1, 1.0), ("accuracy", 1, 0.5)]
    points.commit()
    assert points.read() == []
    assert Points(run, "mlflow-run").read() == []


def test_without_a_commit_the_very_same_points_are_read_again(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    first, again = Points(run, "mlflow-run").read(), Points(run, "mlflow-run").read()
    assert [dict(point) for point in first] == [dict(point) for point in again]


def test_a_line_that_was_cut_off_costs_no_other(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    with open(run.events, "ab") as file:
        file.write(b'{"time_ms": 17, "st')
    points = Points(run, "mlflow-run")
    assert [point.step for point in points.read()] == [1]
    points.commit()
    events.append(run.events, {"loss": 0.5}, step=2)
    assert [point.step for point in points.read()] == [2]
    assert events.history(run.events) == {"loss": {1: 1.0, 2: 0.5}}


def test_mlflow_keeps_a_point_that_is_sent_twice_once(run: Run, digits: Any) -> None:
    client = open_client(f"sqlite:///{digits.workspace / 'mlflow.db'}")
    mlflow_run_id = client.create_run("0").info.run_id
    for step in range(3):
        events.append(run.events, {"loss": 1.0, "nothing": float("nan")}, step=step)
        client.log_batch(mlflow_run_id, metrics=Points(run, mlflow_run_id).read())
    client.set_terminated(mlflow_run_id)
    for metric in ("loss", "nothing"):
        assert [point.step for point in client.get_metric_history(mlflow_run_id, metric)] == [0, 1, 2]


def test_half_a_line_waits_for_its_other_half(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    line = run.events.read_bytes()
    run.events.write_bytes(line + line[:10])
    points = Points(run, "mlflow-run")
    assert len(points.read()) == 1
    points.commit()
    run.events.write_bytes(line + line.replace(b'"step": 1', b'"step": 2'))
    assert [point.step for point in points.read()] == [2]


def test_another_mlflow_run_gets_everything(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    points = Points(run, "mlflow-run")
    points.read()
    points.commit()
    assert len(Points(run, "another").read()) == 1


def test_a_damaged_record_of_what_was_sent_means_sending_all(run: Run) -> None:
    events.append(run.events, {"loss": 1.0}, step=1)
    (run.directory / TRACKED).write_text("{")
    assert len(Points(run, "mlflow-run").read()) == 1
