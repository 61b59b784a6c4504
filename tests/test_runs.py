"""Runs: which run a command goes on with, and what it refuses."""

import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tasks.config import Config, build_config
from tasks.errors import ConfigError, RunError
from tasks.files import lock
from tasks.runs import Run, find_run, is_free, list_runs, open_run, run_key, workspace_of
from tasks.train.result import RESULT
from tests.track.finished_runs import train_result

CONFIG = build_config({"name": "digits"})
OTHER = build_config({"name": "digits", "train": {"seed": 1}})


def begin(
    workspace: Path,
    config: Config = CONFIG,
    *,
    end: type[BaseException] | None = None,
    finish: bool = True,
    **options: Any,
) -> str:
    """Opens a run, ends it by an exception, or well with its pipeline done or not, and returns its id."""
    try:
        with open_run(workspace, config, data_digest="d" * 16, code_digest="c" * 16, **options) as run:
            # A stage after training may be carried out on a finished run, which a kill must not make unfinished.
            assert run.state().status == ("finished" if options.get("existing") else "running")
            assert not is_free(run.directory)
            if end is not None:
                raise end
            if finish:
                run.finish()
    except (ZeroDivisionError, KeyboardInterrupt):
        pass
    assert is_free(run.directory)
    return run.id


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({}, "finished"),
        ({"finish": False}, "open"),
        ({"end": ZeroDivisionError}, "failed"),
        ({"end": KeyboardInterrupt}, "killed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_state_tells_how_a_run_ended(tmp_path: Path, how: dict[str, Any], status: str) -> None:
    run_id = begin(tmp_path, flow_run_id="flow-1", **how)
    state = find_run(tmp_path, run_id).state()
    assert (state.status, state.host, state.pid) == (status, socket.gethostname(), os.getpid())
    assert (state.mlflow_run_id, state.prefect_flow_run_ids) == ("", ("flow-1",))
    assert find_run(tmp_path, run_id).config == CONFIG


def test_id_is_name_time_and_key(tmp_path: Path) -> None:
    key = run_key(CONFIG, data_digest="d" * 16, code_digest="c" * 16)
    assert re.fullmatch(rf"digits-\d{{8}}T\d{{6}}Z-{key}", begin(tmp_path))


def test_unfinished_run_goes_on(tmp_path: Path) -> None:
    first = begin(tmp_path, end=ZeroDivisionError)
    assert begin(tmp_path, end=KeyboardInterrupt) == first
    assert begin(tmp_path, finish=False) == first
    assert begin(tmp_path) == first
    assert [state.id for state in list_runs(tmp_path)] == [first]


def test_unfinished_run_goes_on_under_other_devices(tmp_path: Path) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt)
    other_devices = build_config({"name": "digits"}, ["distribute.kind=one_device", "train.steps_per_call=8"])
    assert begin(tmp_path, other_devices) == first
    assert find_run(tmp_path, first).config == other_devices


def test_newest_of_the_unfinished_runs_goes_on(tmp_path: Path) -> None:
    begin(tmp_path, end=KeyboardInterrupt)
    newest = begin(tmp_path, end=KeyboardInterrupt, fresh=True)
    assert begin(tmp_path) == newest


def test_finished_run_is_not_opened_again(tmp_path: Path) -> None:
    first = begin(tmp_path)
    assert begin(tmp_path) != first
    with pytest.raises(RunError) as refused:
        begin(tmp_path, run_id=first)
    assert str(refused.value) == (
        f"run {first} is finished and is never trained again; begin a new one with `millstream run`, or go on from its "
        f"end with `millstream resume {first} train.total=...`"
    )


CONSTANT = build_config({"name": "digits"}, ["train.optimizer.schedule.kind=constant", "train.total=10 epochs"])


def longer(total: str) -> Config:
    return build_config(CONSTANT.model_dump(mode="json"), [f"train.total={total}"])


def test_a_finished_run_goes_on_to_a_longer_total_as_the_run_that_was_begun_with_it(tmp_path: Path) -> None:
    first = begin(tmp_path, CONSTANT)
    run = find_run(tmp_path, first)
    model, _ = run.model, run.report.mkdir()
    assert begin(tmp_path, longer("20 epochs"), run_id=first, end=KeyboardInterrupt) == first
    assert (run.state().status, run.state().totals) == ("killed", ("10 epochs",))
    assert run.state().key == run_key(longer("20 epochs"), data_digest="d" * 16, code_digest="c" * 16)
    assert (run.directory / "report-10-epochs").is_dir()
    assert not run.report.exists()
    assert begin(tmp_path, longer("20 epochs")) == first, "the same command as for any interrupted run"
    assert begin(tmp_path, longer("30 epochs"), run_id=first) == first
    assert run.state().totals == ("10 epochs", "20 epochs")
    again = find_run(tmp_path, first)
    assert again.config == longer("30 epochs")
    assert (model.name, again.model.name) == (first, f"{first}-30-epochs")
    assert begin(tmp_path, CONSTANT) != first


@pytest.mark.parametrize("total", ["5 epochs", "10000 steps"])
def test_a_run_goes_on_only_longer_and_in_its_own_unit(tmp_path: Path, total: str) -> None:
    first = begin(tmp_path, CONSTANT)
    with pytest.raises(ConfigError) as refused:
        begin(tmp_path, longer(total), run_id=first)
    assert str(refused.value) == (
        f"train.total={total}: run {first} was begun with 10 epochs and can only go on longer; give a larger number of "
        "epochs"
    )
    assert find_run(tmp_path, first).state().status == "finished"


def test_a_run_whose_schedule_knows_its_end_cannot_go_on_longer(tmp_path: Path) -> None:
    first = begin(tmp_path)
    with pytest.raises(ConfigError) as refused:
        begin(tmp_path, build_config({"name": "digits"}, ["train.total=20 epochs"]), run_id=first)
    assert str(refused.value) == (
        f"train.total=20 epochs: run {first} cannot go on, because its cosine schedule has moved the learning rate "
        "towards an end at 10 epochs from the first step; begin a new run of that length with `millstream run`"
    )


@pytest.mark.parametrize(
    ("schedule", "can"),
    [
        ("{kind: constant, warmup: 1 epochs}", True),
        ("{kind: step, boundaries: [30 epochs], factors: [0.1]}", True),
        ("{kind: exponential, every: 1 epochs, factor: 0.9}", True),
        ("{kind: polynomial}", False),
    ],
)
def test_a_run_goes_on_longer_if_its_schedule_does_not_depend_on_the_total(
    tmp_path: Path, schedule: str, can: bool
) -> None:
    tree = build_config({"name": "digits"}, [f"train.optimizer.schedule={schedule}"]).model_dump(mode="json")
    first = begin(tmp_path, build_config(tree))
    with nullcontext() if can else pytest.raises(ConfigError, match="its polynomial schedule has moved"):
        assert begin(tmp_path, build_config(tree, ["train.total=20 epochs"]), run_id=first) == first


def test_a_run_that_was_stopped_early_cannot_go_on_longer(tmp_path: Path) -> None:
    first = begin(tmp_path, CONSTANT)
    run = find_run(tmp_path, first)
    train_result(run).model_copy(update={"stopped_early": "val_loss: no better"}).write(run.directory / RESULT)
    with pytest.raises(
        ConfigError, match=r"was stopped early \(val_loss: no better\), as it would be on the way to any"
    ):
        begin(tmp_path, longer("20 epochs"), run_id=first)


def test_a_run_killed_as_it_is_given_a_longer_total_goes_on_with_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin(tmp_path, CONSTANT)
    with monkeypatch.context() as patched:

        def kill(directory: Path, config: Config) -> None:
            raise KeyboardInterrupt

        patched.setattr("tasks.runs._write_config", kill)
        digests = {"data_digest": "d" * 16, "code_digest": "c" * 16}
        with pytest.raises(KeyboardInterrupt), open_run(tmp_path, longer("20 epochs"), **digests, run_id=first):
            pass
    assert find_run(tmp_path, first).config == CONSTANT, "killed between state and config"
    assert begin(tmp_path, longer("20 epochs"), run_id=first) == first
    assert find_run(tmp_path, first).state().totals == ("10 epochs",)


def test_a_run_waits_for_a_worker_that_outlived_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt)
    monkeypatch.setattr("tasks.runs.WORKER_TIMEOUT_SECONDS", 0.1)
    with lock(find_run(tmp_path, first).worker_lock), pytest.raises(RunError, match="is still at work on it after"):
        begin(tmp_path)
    assert begin(tmp_path) == first


def test_a_flow_run_that_is_scheduled_anew_waits_for_its_execution_before(tmp_path: Path) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt, flow_run_id="flow-1")
    begun, told = threading.Event(), threading.Event()

    def execute() -> None:
        with lock(find_run(tmp_path, first).lock):
            begun.set()
            told.wait()

    execution = threading.Thread(target=execute)
    execution.start()
    begun.wait()
    with pytest.raises(RunError, match="is being carried out"):
        begin(tmp_path, flow_run_id="flow-2")
    threading.Timer(0.2, told.set).start()
    assert begin(tmp_path, flow_run_id="flow-1") == first
    execution.join()


def test_stage_after_training_takes_the_newest_run_finished_or_not_and_never_a_new_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no run of this config \(key \w{12}\) in .*; train one first with"):
        begin(tmp_path, existing=True)
    first = begin(tmp_path)
    second = begin(tmp_path, fresh=True)
    assert begin(tmp_path, existing=True, finish=False) == second
    assert begin(tmp_path, existing=True, run_id=first, end=ZeroDivisionError) == first
    assert [state.status for state in list_runs(tmp_path)] == ["finished", "finished"]


def test_a_reproduction_goes_on_with_none_but_its_like(tmp_path: Path) -> None:
    first = begin(tmp_path, end=ZeroDivisionError)
    again = begin(tmp_path, end=KeyboardInterrupt, reproduces=first)
    assert again != first
    assert find_run(tmp_path, again).state().reproduces == first
    assert begin(tmp_path, end=KeyboardInterrupt, reproduces=first) == again
    assert begin(tmp_path) == first
    assert begin(tmp_path, existing=True) == first
    assert begin(tmp_path, end=KeyboardInterrupt, reproduces="digits-of-another-day") not in {first, again}
    assert begin(tmp_path, run_id=again) == again
    assert find_run(tmp_path, again).state().reproduces == first
    assert begin(tmp_path, reproduces=first) not in {first, again}


@pytest.mark.parametrize(
    "other", [{"config": OTHER}, {"data_digest": "e" * 16}, {"code_digest": "e" * 16}], ids=["config", "data", "code"]
)
def test_run_of_another_key_is_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt)
    arguments = {"config": CONFIG, "data_digest": "d" * 16, "code_digest": "c" * 16} | other
    with open_run(tmp_path, **arguments) as run:
        assert run.id != first
    with (
        pytest.raises(ConfigError, match=f"run {first} was begun with another config, data or model code"),
        open_run(tmp_path, **arguments, run_id=first),
    ):
        pass


def test_fresh_begins_another(tmp_path: Path) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt)
    assert begin(tmp_path, fresh=True) != first


def test_named_run_goes_on_although_a_newer_one_is_unfinished(tmp_path: Path) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt)
    begin(tmp_path, end=KeyboardInterrupt, fresh=True)
    assert begin(tmp_path, run_id=first) == first


def test_unknown_run_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(RunError) as none:
        begin(tmp_path, run_id="digits-1")
    first = begin(tmp_path)
    with pytest.raises(RunError) as some:
        begin(tmp_path, run_id="digits-1")
    assert str(none.value) == f"no run 'digits-1' in {tmp_path}; the newest are: none yet"
    assert str(some.value) == f"no run 'digits-1' in {tmp_path}; the newest are: {first}"


def test_run_has_its_config_as_soon_as_it_has_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(self: Run, **changes: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "update", kill)
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path, CONFIG, data_digest="d" * 16, code_digest="c" * 16):
        pass
    (state,) = list_runs(tmp_path)
    assert find_run(tmp_path, state.id).config == CONFIG


def test_retried_flow_run_goes_on_with_its_own_run(tmp_path: Path) -> None:
    first = begin(tmp_path, end=KeyboardInterrupt, flow_run_id="flow-1")
    begin(tmp_path, end=KeyboardInterrupt, flow_run_id="flow-2", fresh=True)
    assert begin(tmp_path, end=KeyboardInterrupt, flow_run_id="flow-1") == first
    assert begin(tmp_path, flow_run_id="flow-1", fresh=True) == first  # --fresh was for its first attempt


def test_run_that_is_running_is_refused_with_host_and_process(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from tasks.config import build_config\nfrom tasks.runs import open_run\n"
        "config = build_config({'name': 'digits'})\n"
        "with open_run(Path(sys.argv[1]), config, data_digest='d' * 16, code_digest='c' * 16) as run:\n"
        "    print(run.id, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            running = process.stdout.readline().strip()
            with pytest.raises(RunError) as refused:
                begin(tmp_path)
            assert str(refused.value) == (
                f"run {running} with this very config is being carried out on {socket.gethostname()} by process "
                f"{process.pid}; wait for it, stop it, or begin another with --fresh"
            )
            assert begin(tmp_path, OTHER) != running
            assert begin(tmp_path, fresh=True) != running
        finally:
            process.kill()
    assert find_run(tmp_path, running).state().status == "running"  # it had no time to say otherwise
    assert begin(tmp_path) == running


def test_workspace_is_absolute_and_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert workspace_of({}) == tmp_path / "workspace"
    assert workspace_of({"MILLSTREAM_WORKSPACE": "elsewhere"}) == tmp_path / "elsewhere"
    assert workspace_of({"MILLSTREAM_WORKSPACE": "~/runs"}) == Path.home() / "runs"
