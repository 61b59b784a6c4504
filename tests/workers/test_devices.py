"""The strategy has the replicas that the config asks for, or the config is refused."""

import re
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest

from tasks.config import build_config
from tasks.distribution import Hybrid
from tasks.errors import ConfigError
from tasks.workers.devices import num_replicas, plan_groups


@pytest.mark.parametrize(
    ("distribute", "devices"),
    [
        ({"kind": "one_device"}, [0]),
        ({"kind": "mirrored", "num_replicas": 1}, [0]),
        ({"kind": "mirrored", "num_replicas": 2}, [0, 1]),
        ({"kind": "mirrored", "num_replicas": 4}, [0, 1, 2, 3]),
        ({"kind": "mirrored", "devices": [0, 2]}, [0, 2]),
    ],
)
def test_the_replicas_of_a_strategy_add_up(
    workers: ModuleType, tmp_path: Path, distribute: dict[str, Any], devices: list[int]
) -> None:
    found = workers.call(
        "worker_functions:sum_over_replicas",
        {"distribute": distribute},
        log=tmp_path / "log",
        environments=[{"CUDA_VISIBLE_DEVICES": "-1"}],  # the same claim on a machine with GPUs
        import_path=[str(Path(__file__).parent)],
    )
    assert found == {
        "num_replicas": len(devices),
        "sums": [len(devices)] * len(devices),
        "devices": [f"CPU:{index}" for index in devices],
    }


@pytest.mark.parametrize(
    ("requested", "num_gpus", "count"),
    [("auto", 0, 2), ("auto", 1, 1), ("auto", 8, 8), (4, 0, 4), (1, 8, 1), (8, 8, 8)],
)
def test_auto_is_every_gpu_or_two_cpu_devices(requested: int | Literal["auto"], num_gpus: int, count: int) -> None:
    assert num_replicas(requested, num_gpus=num_gpus) == count


def test_more_replicas_than_gpus_are_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError) as error:
        num_replicas(4, num_gpus=2)
    assert str(error.value) == (
        "distribute.num_replicas=4: only 2 GPUs are visible to TensorFlow; use at most 2, or auto"
    )


def test_groups_are_neighbouring_devices() -> None:
    groups = plan_groups(Hybrid(num_groups=2, num_devices=2), num_gpus=4)
    assert [[name.rpartition("device:")[2] for name in group] for group in groups] == [
        ["GPU:0", "GPU:1"],
        ["GPU:2", "GPU:3"],
    ]


def test_groups_that_need_more_gpus_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError) as error:
        plan_groups(Hybrid(num_groups=2, num_devices=4), num_gpus=4)
    assert str(error.value) == (
        "distribute.num_devices=4: 2 group(s) of so many need 8 GPUs, and 4 are visible to TensorFlow; use at most 2"
    )


@pytest.mark.parametrize("distribute", [{"devices": [1, 1]}, {"devices": [0, 1], "num_replicas": 4}])
def test_devices_that_are_not_one_for_each_replica_are_refused(distribute: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^distribute.devices=.*: must be different numbers, one for each of num"):
        build_config({"name": "digits", "distribute": distribute})


def test_devices_are_described_without_a_gpu(workers: ModuleType, tmp_path: Path) -> None:
    found = workers.call(
        "tasks.workers.devices:describe_devices",
        {},
        log=tmp_path / "log",
        environments=[{"CUDA_VISIBLE_DEVICES": "-1"}],
    )
    assert found["tensorflow"] == version("tensorflow")
    assert found["keras"] == version("keras")
    assert found["devices"] == ["CPU:0"]
    assert all(re.fullmatch(r"lib\w+\.so\.\d+", library) for library in found["missing_libraries"])
    assert found["built_with_cuda"] or not found["missing_libraries"]
