"""`millstream compare`: short on a terminal of 80 columns, whole as JSON."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows import display, history
from tasks.errors import RunError
from tests.track.finished_runs import eval_report, log_epochs, train_result


@pytest.fixture
def two_runs(digits: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of two runs that differ in the seed, the replicas and their figures."""
    monkeypatch.setenv("MILLSTREAM_WORKSPACE", str(digits.workspace))
    runs = [digits.run(), digits.run("train.seed=1")]
    for number, run in enumerate(runs):
        log_epochs(run, val_accuracy=[0.5, 0.9 + number / 20], examples_per_second=1000 * (1 + number))
        train_result(run, num_replicas=1 + number)
        eval_report(run, accuracy=0.9 + number / 20)
    return [run.id for run in runs]


def test_what_differs_fits_into_80_columns(two_runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    history.compare(*two_runs, until="val_accuracy=0.9")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert rows[0] == ["A", two_runs[0], "open"]
    assert rows[1] == ["B", two_runs[1], "open"]
    assert ["train.seed", "0", "1"] in rows
    assert ["num_replicas", "1", "2"] in rows
    assert ["eval/accuracy", "0.9", "0.95"] in rows
    assert ["perf/examples_per_second", "1,000", "2,000"] in rows
    assert "seconds until val_accuracy=0.9  2.874  1.437" in "\n".join(lines)
    assert "data: 0 differ, 7 are equal" in lines
    assert not any("train.total" in line for line in lines)


def test_many_runs_fit_too(two_runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    history.compare(*two_runs, *two_runs)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    assert display.labels(28)[23:] == ["X", "Y", "Z", "AA", "AB"]


def test_json_holds_all_of_it(two_runs: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history.compare(*two_runs, png=tmp_path / "curves.png", json=True)
    found = json.loads(capsys.readouterr().out)
    assert [run["id"] for run in found["runs"]] == two_runs
    assert found["differences"]["params"] == {"train.seed": ["0", "1"]}
    assert found["num_equal"]["params"] > 40
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_run_is_refused_with_those_there_are(two_runs: list[str]) -> None:
    with pytest.raises(RunError, match=f"no run 'x' in .*; the newest are: .*{two_runs[1]}"):
        history.compare(two_runs[0], "x")


def test_comparing_imports_neither_tensorflow_nor_mlflow_nor_prefect(two_runs: list[str]) -> None:
    code = (
        f"import sys; from flows import history; history.compare(*{two_runs!r}, json=True); "
        "print([name for name in ('tensorflow', 'keras', 'mlflow', 'prefect') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
