"""`millstream runs`: the runs of a workspace with what they reached, filtered."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows import history
from tasks.config import build_config
from tasks.files import lock
from tasks.runs import Run, open_run
from tests.track.finished_runs import eval_report, log_epochs


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Four runs, oldest first: a finished one, one that died, one that is carried out, and one of another name."""
    monkeypatch.setenv("MILLSTREAM_WORKSPACE", str(tmp_path))
    runs = []
    for name, seed in (("digits", 1), ("digits", 2), ("digits", 3), ("my_flowers", 4)):
        config = build_config({"name": name, "train": {"seed": seed, "best_metric": "val_loss"}})
        with open_run(tmp_path, config, data_digest="d", code_digest="c", fresh=True) as run:
            runs.append(run)
    for position, run in enumerate(runs):
        run.update(created=f"2026-01-0{1 + position}T00:00:00.000+00:00")
    log_epochs(runs[0], val_accuracy=[0.5, 0.875, 0.75], examples_per_second=12345.0)
    eval_report(runs[0])
    runs[0].finish()
    runs[1].update(status="running")
    runs[2].update(status="running")
    return runs


def test_the_table_shows_what_each_reached_in_80_columns(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    with lock(runs[2].directory / "lock"):
        history.runs()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 + len("my_flowers") - len("digits")
    assert [line.split() for line in lines] == [
        ["run", "status", "best", "val", "test", "examples/s"],
        [runs[3].id, "open"],
        [runs[2].id, "running"],
        [runs[1].id, "killed"],
        [runs[0].id, "finished", "0.1250", "loss", "0.7500", "12,345"],
    ]


def test_filters_by_name_status_and_number(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    def ids(**filters: Any) -> list[str]:
        history.runs(**filters, json=True)
        return [each["id"] for each in json.loads(capsys.readouterr().out)]

    assert ids() == [run.id for run in reversed(runs)]
    assert ids(name="my_flowers") == [runs[3].id]
    assert ids(name="my") == []
    assert ids(status="killed") == [runs[2].id, runs[1].id]
    assert ids(status="finished") == [runs[0].id]
    assert ids(name="digits", limit=2) == [runs[2].id, runs[1].id]
    assert ids(limit=0) == []


def test_json_holds_state_and_figures(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    history.runs(status="finished", json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["best_metric"], found["best_value"]) == ("val_loss", 0.125)
    assert (found["eval_metric"], found["eval_value"], found["examples_per_second"]) == ("accuracy", 0.75, 12345.0)
    assert found["data_digest"] == "d"


def test_without_such_runs_it_says_how_to_begin_one(runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    history.runs(name="nothing")
    assert capsys.readouterr().err == "no such runs; begin one with `millstream run CONFIG`\n"
