"""Compare: only what differs, exact, from the runs' own directories."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tasks import events
from tasks.errors import ConfigError
from tasks.runs import Run, open_run
from tasks.track import contents
from tasks.track.comparison import Until, compare_runs
from tasks.track.curves import write_curves
from tasks.track.provenance import find_provenance, write_provenance
from tasks.track.tracked import Tracked, write_tracked
from tasks.train.stage import RESULT
from tests.track.finished_runs import eval_report, log_epochs, train_result


def test_runs_that_are_alike_differ_in_nothing(digits: Any) -> None:
    runs = [_finished(digits.run()) for _ in range(2)]
    compared = compare_runs(runs)
    assert [state.id for state in compared.runs] == [run.id for run in runs]
    assert list(compared.differences) == ["params", "data", "code", "environment", "figures"]
    assert not any(compared.differences.values())
    assert min(compared.num_equal.values()) > 0


def test_params_and_figures_that_differ_are_all_there_is_and_the_rest_is_counted(digits: Any) -> None:
    first = _finished(digits.run())
    second = _finished(digits.run("train.seed=7", "model.args.width=8", "model.args.extra=1"), accuracy=0.5)
    compared = compare_runs([first, second])
    assert compared.differences == {
        "params": {"train.seed": ("0", "7"), "model.args.width": ("32", "8"), "model.args.extra": (None, "1")},
        "data": {},
        "code": {},
        "environment": {},
        "figures": {"eval/accuracy": (0.75, 0.5)},
    }
    assert compare_runs([first, first]).num_equal["params"] == compared.num_equal["params"] + 2
    assert compare_runs([first, second, first]).differences["figures"] == {"eval/accuracy": (0.75, 0.5, 0.75)}


def test_data_code_and_environment_that_differ_are_named(digits: Any) -> None:
    first = _finished(digits.run())
    with open_run(digits.workspace, first.config, data_digest="f" * 32, code_digest="another", fresh=True) as other:
        events.append(other.events, {"data/num_examples_train": 99, "data/num_bad": 1}, step=0)
    provenance = find_provenance(_finished(other, num_replicas=1))
    assert provenance is not None
    packages = {**provenance.packages, "numpy": "0.1"}
    changed = provenance.model_copy(update={"host": "elsewhere", "packages": packages, "code_digest": "c"})
    changed.write(other.directory / "provenance.json")
    found = compare_runs([first, other]).differences
    assert found["data"]["data_digest"] == (digits.shards.data_digest, "f" * 32)
    assert found["data"]["num_examples_train"] == (1437, 99)
    assert found["data"]["num_bad"] == (0, 1)
    assert found["code"] == {"code_digest": (provenance.code_digest, "c")}
    assert found["environment"] == {
        "host": (provenance.host, "elsewhere"),
        "package numpy": (provenance.packages["numpy"], "0.1"),
        "num_replicas": (2, 1),
        "devices": ("CPU:0, CPU:1", "CPU:0"),
    }


def test_time_to_a_metric_is_that_of_the_steps(digits: Any) -> None:
    runs = [digits.run() for _ in range(3)]
    log_epochs(runs[0], val_accuracy=[0.5, 0.8, 0.9], examples_per_second=1437.0)
    log_epochs(runs[1], val_accuracy=[0.85, 0.7, 0.9], examples_per_second=143.7)
    log_epochs(runs[2], val_accuracy=[0.5, 0.6, 0.7])
    rising = compare_runs(runs, Until.parse("val_accuracy=0.8")).differences["figures"]
    assert rising["epochs until val_accuracy=0.8"] == (2, 1, None)
    assert rising["seconds until val_accuracy=0.8"] == (2.0, 10.0, None)
    falling = compare_runs(runs, Until.parse("val_loss=0.2")).differences["figures"]
    assert falling["epochs until val_loss=0.2"] == (2, 1, None)


@pytest.mark.parametrize("text", ["val_accuracy", "val_accuracy=high", ""])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a metric and a value to reach"):
        Until.parse(text)


def test_a_metric_that_no_run_has_is_refused_with_those_there_are(digits: Any) -> None:
    run = digits.run()
    log_epochs(run, val_accuracy=[0.5])
    with pytest.raises(ConfigError, match=r"no such metric in these runs; they have: epoch, loss, perf/.*, val_accur"):
        compare_runs([run, run], Until("val_acuracy", 0.5))


def test_what_a_run_has_not_reached_is_unknown(digits: Any) -> None:
    begun, finished = digits.run(), _finished(digits.run())
    events.append(begun.events, {"loss": float("nan")}, step=10)
    found = compare_runs([begun, finished]).differences
    assert found["figures"]["eval/accuracy"] == (None, 0.75)
    assert found["figures"]["loss"] == ("nan", 1 / 3)
    assert found["code"]["code_digest"][0] is None
    assert found["environment"]["num_replicas"] == (None, 2)


def test_mlflow_is_linked_if_all_runs_are_tracked_at_one_place(digits: Any) -> None:
    runs = [digits.run() for _ in range(2)]
    assert compare_runs(runs).mlflow_url == ""
    for number, run in enumerate(runs):
        write_tracked(run, Tracked(mlflow_run_id=f"r{number}", experiment_id="3", uri="https://mlflow.example"))
    assert compare_runs(runs).mlflow_url == (
        "https://mlflow.example/#/compare-runs?runs=%5B%22r0%22%2C%22r1%22%5D&experiments=%5B%223%22%5D"
        "&workflowType=machine_learning"
    )
    assert compare_runs(runs).ui_command == ""
    write_tracked(runs[0], Tracked(mlflow_run_id="r0", experiment_id="3", uri="sqlite:////w/mlflow.db"))
    assert compare_runs(runs).mlflow_url == ""


def test_the_curves_of_all_runs_are_one_picture(digits: Any, tmp_path: Path) -> None:
    runs = {"A": digits.run(), "B": digits.run(), "C": digits.run()}
    write_curves(runs, tmp_path / "empty.png")
    log_epochs(runs["A"], val_accuracy=[0.5, 0.6])
    log_epochs(runs["B"], val_accuracy=[0.7])
    write_curves(runs, tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.size == (1500, 1050)  # two rows of two panels, for the four metrics that there are
        colors = {color for _, color in picture.convert("RGB").getcolors(maxcolors=1 << 24) or []}
    assert {(0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00)} <= colors
    assert {file.name for file in tmp_path.iterdir()} == {"empty.png", "curves.png"}


def test_the_result_of_a_training_is_found_by_its_name() -> None:
    assert contents.RESULT == RESULT


def _finished(run: Run, *, accuracy: float = 0.75, num_replicas: int = 2) -> Run:
    write_provenance(run, {})
    log_epochs(run, val_accuracy=[0.5, 0.8, 0.9])
    train_result(run, num_replicas=num_replicas)
    eval_report(run, accuracy=accuracy)
    return run
