"""Points: what was sent is not read again, whoever died when."""

from pathlib import Path
from typing import Any

from tasks import events
from tasks.track.client import open_client
from tasks.track.points import has_new_points, read_points
from tasks.track.tracked import Tracked


def test_what_was_sent_is_not_read_again(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert read_points(file, Tracked()) == ([], Tracked())
    events.append(file, {"loss": 1.0, "accuracy": 0.5}, step=1)
    assert has_new_points(file, Tracked())
    points, sent = read_points(file, Tracked())
    assert [(point.key, point.step, point.value) for point in points] == [("loss", 1, 1.0), ("accuracy", 1, 0.5)]
    assert not has_new_points(file, sent)
    assert read_points(file, sent) == ([], sent)


def test_until_it_is_written_down_the_very_same_points_are_read(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events.append(file, {"loss": 1.0}, step=1)
    first, again = read_points(file, Tracked())[0], read_points(file, Tracked())[0]
    assert [dict(point) for point in first] == [dict(point) for point in again]


def test_a_line_that_was_cut_off_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events.append(path, {"loss": 1.0}, step=1)
    with open(path, "ab") as file:
        file.write(b'{"time_ms": 17, "st')
    points, sent = read_points(path, Tracked())
    assert [point.step for point in points] == [1]
    events.append(path, {"loss": 0.5}, step=2)
    assert [point.step for point in read_points(path, sent)[0]] == [2]
    assert events.history(path) == {"loss": {1: 1.0, 2: 0.5}}


def test_mlflow_keeps_a_point_that_is_sent_twice_once(tmp_path: Path, digits: Any) -> None:
    file = tmp_path / "events.jsonl"
    client = open_client(f"sqlite:///{digits.workspace / 'mlflow.db'}")
    mlflow_run_id = client.create_run("0").info.run_id
    for step in range(3):
        events.append(file, {"loss": 1.0, "nothing": float("nan")}, step=step)
        client.log_batch(mlflow_run_id, metrics=read_points(file, Tracked())[0])
    client.set_terminated(mlflow_run_id)
    for metric in ("loss", "nothing"):
        assert [point.step for point in client.get_metric_history(mlflow_run_id, metric)] == [0, 1, 2]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events.append(file, {"loss": 1.0}, step=1)
    line = file.read_bytes()
    file.write_bytes(line + line[:10])
    points, sent = read_points(file, Tracked())
    assert len(points) == 1
    assert not has_new_points(file, sent)
    file.write_bytes(line + line.replace(b'"step": 1', b'"step": 2'))
    assert [point.step for point in read_points(file, sent)[0]] == [2]
