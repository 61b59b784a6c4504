"""A training that goes on with other devices, asked to or for want of some, ends with the same weights."""

import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks import events
from tasks.config import build_config
from tasks.errors import Stopped, WorkerError, WorkerLost
from tasks.runs import Run, find_run
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train
from tasks.workers import launch

EXACT = "train.precision=float64"
TWO_WORKERS = ("distribute.kind=multi_worker_mirrored", "distribute.num_workers=2")


def end_of(run, result):
    """Returns the weights and the history of every figure that does not tell the time."""
    history = events.history(run.events)
    return load_file(result.last_checkpoint / VARIABLES), {
        name: points for name, points in history.items() if "/" not in name
    }


def assert_same(end, expected):
    (weights, history), (all_weights, whole_history) = end, expected
    assert weights.keys() == all_weights.keys()
    assert max(float(np.abs(weights[name] - all_weights[name]).max()) for name in weights) <= 1e-9
    assert history.keys() == whole_history.keys()
    for name, points in whole_history.items():
        assert list(history[name]) == list(points) == [23, 46, 69], "without gap or repeat"
        assert list(history[name].values()) == pytest.approx(list(points.values()), abs=1e-9)


@pytest.fixture(scope="module")
def whole(trainer, tmp_path_factory):
    """The end of a run on two replicas that nothing befell."""
    run = trainer.faulty_run("SIGKILL", tmp_path_factory.mktemp("whole") / "fired", EXACT, steps=())
    return end_of(run, train(run, trainer.digits.shards))


@pytest.fixture(scope="module")
def killed(trainer, tmp_path_factory):
    """A run on two replicas that was killed in the middle of its second epoch."""
    fired = tmp_path_factory.mktemp("killed") / "fired"
    run = trainer.faulty_run("SIGKILL", fired, EXACT, "train.max_restarts=0")
    with pytest.raises(WorkerLost, match="SIGKILL"):
        train(run, trainer.digits.shards)
    assert fired.read_text() == "SIGKILL at step 38\n"
    return run


@pytest.mark.parametrize(
    ("devices", "num_replicas"),
    [
        (["distribute.num_replicas=1"], 1),
        pytest.param(["distribute.num_replicas=4"], 4, marks=pytest.mark.prove),
        pytest.param(TWO_WORKERS, 2, marks=pytest.mark.prove),
    ],
    ids=["one replica", "four replicas", "two workers"],
)
def test_killed_on_two_replicas_it_ends_the_same_on(trainer, whole, killed, devices, num_replicas):
    directory = killed.directory.with_name(f"{killed.id}-on-{num_replicas}")
    shutil.copytree(killed.directory, directory)
    other = build_config(killed.config.model_dump(mode="json"), devices).distribute
    run = Run(directory, killed.config).on(other)
    result = train(run, trainer.digits.shards)
    assert (result.resumed_from_step, result.num_replicas) == (30, num_replicas)
    assert_same(end_of(run, result), whole)


@pytest.mark.prove
def test_stopped_on_two_workers_it_ends_the_same_on_one(trainer, whole, tmp_path):
    run = trainer.faulty_run("SIGTERM", tmp_path / "fired", EXACT, *TWO_WORKERS, worker=1)
    with pytest.raises(Stopped, match="stopped by a signal at step 38"):  # all of them, at one step
        train(run, trainer.digits.shards)
    result = train(trainer.digits.same_run(run, "distribute.kind=one_device"), trainer.digits.shards)
    assert (result.resumed_from_step, result.num_replicas) == (38, 1)
    assert_same(end_of(run, result), whole)


@pytest.fixture
def four_gpus(monkeypatch):
    """The logical devices of a worker pass for the GPUs 0 to 3; on number 2 no new process can compute."""
    call = launch.call

    def call_as_on_gpus(function, arguments, *, environments=({},), on_progress=None, **options):
        if function.endswith(":try_gpu"):
            return {"answers": environments[0]["CUDA_VISIBLE_DEVICES"] != "2"}

        def show(report):
            on_progress(report | ({"num_gpus": 4} if "num_gpus" in report else {}))

        return call(function, arguments, environments=environments, on_progress=show, **options)

    monkeypatch.setattr(launch, "call", call_as_on_gpus)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")


@pytest.mark.usefixtures("four_gpus")
def test_when_a_gpu_is_gone_it_stops_and_says_how_to_go_on_or_ends_the_same_on_those_that_are_left(
    trainer, whole, tmp_path, caplog
):
    fired = tmp_path / "fired"
    run = trainer.faulty_run("fail_gpu", fired, EXACT, "distribute.num_replicas=4", steps=[35, 58])
    with pytest.raises(WorkerError) as stopped:
        train(run, trainer.digits.shards)
    assert fired.read_text() == "fail_gpu at step 38\n"
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in str(stopped.value)
    assert str(stopped.value).endswith(
        "; gpu-2 is gone for good (no new process can compute on it), left of this run's GPUs: gpu-0, gpu-1, gpu-3; "
        "`export CUDA_VISIBLE_DEVICES=0,1,3` and the same command with distribute.num_replicas=3 go on from step 30 to "
        "the same weights, distribute.on_lost_device=shrink by itself"
    )
    assert caplog.records == []
    assert run.state().lost_devices == ()

    result = train(trainer.digits.same_run(run, "distribute.on_lost_device=shrink"), trainer.digits.shards)
    assert fired.read_text() == "fail_gpu at step 38\nfail_gpu at step 58\n"
    assert (result.resumed_from_step, result.num_replicas) == (50, 3)
    assert_same(end_of(run, result), whole)
    line = "gpu-2 lost at step 50: 4 replicas became 3"
    assert run.state().lost_devices == (line,)
    assert f"{line}; goes on with the same global batch" in caplog.text
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,3", "for the evaluation and the export"
    assert find_run(run.workspace, run.id).config.distribute.num_replicas == 3
