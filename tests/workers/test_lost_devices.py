"""A GPU is gone if no new process can compute on it, and each kind of distribution takes what it can of the others."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tasks.distribution import (
    Distribute,
    Hybrid,
    Mirrored,
    ModelParallel,
    MultiWorkerMirrored,
    OneDevice,
    ParameterServer,
)
from tasks.errors import WorkerError, WorkerLost
from tasks.workers import launch
from tasks.workers.lost_devices import shrink, without_lost_devices

LOST = WorkerLost("the worker was killed by SIGABRT")


@pytest.mark.parametrize(
    ("distribute", "left", "fewer", "taken"),
    [
        (Mirrored(), "013", Mirrored(), "013"),
        (Mirrored(num_replicas=4), "013", Mirrored(num_replicas=3), "013"),
        (Mirrored(devices=(0, 2)), "3", Mirrored(), "3"),
        (MultiWorkerMirrored(num_workers=2), "013", MultiWorkerMirrored(num_workers=2), "01"),
        (MultiWorkerMirrored(num_workers=2), "3", MultiWorkerMirrored(num_workers=1), "3"),
        (ParameterServer(num_workers=4), "013", ParameterServer(num_workers=3), "013"),
        (Hybrid(num_groups=3, num_devices=2), "01345", Hybrid(num_groups=2, num_devices=2), "0134"),
    ],
)
def test_it_takes_of_the_gpus_that_are_left_what_it_can_share_evenly(
    distribute: Distribute, left: str, fewer: Distribute, taken: str
) -> None:
    assert shrink(distribute, list(left)) == (fewer, list(taken))


@pytest.mark.parametrize(
    ("distribute", "left"),
    [(OneDevice(), ""), (Mirrored(), ""), (ModelParallel(num_devices=4), "013"), (Hybrid(num_devices=4), "013")],
)
def test_what_needs_the_lost_one_cannot_go_on(distribute: Distribute, left: str) -> None:
    assert shrink(distribute, list(left)) is None


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A host with the GPUs 0 and 1: what each answers, or is raised where it is asked."""
    answers: dict[str, Any] = {"0": True, "1": True}

    def call(function: str, *_: Any, environments: list[dict[str, str]], **__: Any) -> dict[str, bool]:
        assert function == "tasks.workers.devices:try_gpu"
        answer = answers[environments[0]["CUDA_VISIBLE_DEVICES"]]
        if isinstance(answer, Exception):
            raise answer
        return {"answers": answer}

    monkeypatch.setattr(launch, "call", call)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return answers


def test_when_every_gpu_answers_none_is_gone(probed: dict[str, Any], digits: Any, tmp_path: Path) -> None:
    run = digits.run("distribute.on_lost_device=shrink")
    assert without_lost_devices(run, LOST, where="step 30", log=tmp_path / "log") is None
    assert run.state().lost_devices == ()


def test_a_process_that_dies_on_a_gpu_is_an_answer(probed: dict[str, Any], digits: Any, tmp_path: Path) -> None:
    probed["0"] = WorkerLost("try_gpu was killed by SIGABRT")
    run = digits.run("distribute={kind: mirrored, on_lost_device: shrink, devices: [0, 1]}")
    smaller = without_lost_devices(run, LOST, where="step 30", log=tmp_path / "log")
    assert smaller is not None
    assert smaller.config.distribute == Mirrored(on_lost_device="shrink")
    assert run.state().lost_devices == ("gpu-0 lost at step 30: 2 replicas became 1",)


def test_a_run_that_cannot_do_without_it_is_told_so(probed: dict[str, Any], digits: Any, tmp_path: Path) -> None:
    probed["1"] = False
    run = digits.run("distribute={kind: model_parallel, on_lost_device: shrink}")
    with pytest.raises(WorkerError) as error:
        without_lost_devices(run, LOST, where="step 30", log=tmp_path / "log")
    assert str(error.value) == (
        "the worker was killed by SIGABRT; gpu-1 is gone for good (no new process can compute on it), left of this "
        "run's GPUs: gpu-0; distribute.kind=model_parallel cannot do with these: the same command goes on from step 30 "
        "with other GPUs (CUDA_VISIBLE_DEVICES) or another distribute.kind"
    )


def test_a_process_that_sees_no_gpu_says_that_none_answers(workers: ModuleType, tmp_path: Path) -> None:
    environments = [{"CUDA_VISIBLE_DEVICES": "-1"}]
    found = workers.call("tasks.workers.devices:try_gpu", {}, log=tmp_path / "log", environments=environments)
    assert found == {"answers": False}
