"""Doctor: what it finds and how it says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tasks.config import build_config
from tasks.host import doctor

ROOT = Path(__file__).parents[2]
CPU_ONLY = {
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "built_with_cuda": True,
    "devices": ["CPU:0"],
    "missing_libraries": ["libcuda.so.1", "libcudnn.so.9"],
}


def test_doctor_asks_a_child_and_imports_no_tensorflow_itself(tmp_path: Path) -> None:
    script = (
        "import json, sys\nfrom pathlib import Path\nfrom tasks.host.doctor import examine\n"
        "found = examine(Path('conf/digits.yaml'), ['train.seed=1'], Path(sys.argv[1]) / 'new' / 'workspace')\n"
        "print(json.dumps([finding.model_dump() for finding in found]))\n"
        "print([name for name in ('keras', 'mlflow', 'prefect', 'tensorflow') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    findings, imported = done.stdout.splitlines()
    assert imported == "[]"
    found = {finding["name"]: finding for finding in json.loads(findings)}
    assert list(found)[-2:] == ["replicas", "memory plan"]
    for name in ("python", "package tasks", "package flows", "config", "devices", "workspace", "memory"):
        assert found[name]["status"] == "ok", found[name]
    assert "CPU:0" in found["devices"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_releases_outside_the_required_range_are_problems() -> None:
    requirements = [
        Requirement(text)
        for text in (
            "keras>=3.15,<3.16",
            "mlflow>=3.17,<3.18",
            "prefect>=3.9",
            "numpy>=2",
            "tensorflow; extra == 'gpu'",
        )
    ]
    installed = {"keras": "3.15.1", "mlflow": "3.18.0"}
    assert doctor._packages(requirements, installed.get) == [
        doctor.Finding(name="keras", status="ok", found="3.15.1"),
        doctor.Finding(name="mlflow", status="problem", found="3.18.0", fix="must be <3.18,>=3.17; run `make setup`"),
        doctor.Finding(name="prefect", status="problem", found="not installed", fix="must be >=3.9; run `make setup`"),
    ]


def test_package_that_takes_the_place_of_ours_is_found(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").touch()
    tasks, flows = doctor._own_packages([str(tmp_path), str(ROOT)])
    assert (tasks.status, tasks.found) == ("problem", str(tmp_path / "tasks.py"))
    assert tasks.fix == f"must be {ROOT / 'tasks'}; rename what takes its place, or run `make setup`"
    assert (flows.status, flows.found) == ("ok", str(ROOT / "flows"))


def test_config_error_is_a_problem_in_its_own_words(tmp_path: Path) -> None:
    config, findings = doctor._config(ROOT / "conf" / "digits.yaml", ("train.precision=float16",))
    assert config is None
    assert [finding.status for finding in findings] == ["problem"]
    assert findings[0].found.startswith("train.precision='float16': must be one of float32, float64")


@pytest.mark.parametrize(
    ("changes", "status", "fix"),
    [
        ({}, "ok", "only for a machine with GPUs: install NVIDIA's driver, then run `make setup GPU=1`"),
        ({"built_with_cuda": False, "missing_libraries": []}, "ok", ""),
        ({"missing_libraries": ["libcudnn.so.9"]}, "problem", "run `make setup GPU=1`"),
        ({"missing_libraries": ["libnccl.so.2"], "devices": ["CPU:0", "GPU:0"]}, "warning", "run `make setup GPU=1`"),
        ({"missing_libraries": [], "devices": ["CPU:0", "GPU:0"]}, "ok", ""),
    ],
    ids=["no driver", "built for CPUs", "driver without libraries", "library missing", "complete"],
)
def test_missing_cuda_libraries_matter_where_there_is_a_driver(
    changes: dict[str, object], status: str, fix: str
) -> None:
    devices, cuda = doctor._device_findings(CPU_ONLY | changes)
    assert devices.status == "ok"
    assert (cuda.status, cuda.fix) == (status, fix)


def test_workspace_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [finding] = doctor._workspace(tmp_path / "file" / "workspace")
    assert (finding.status, finding.found) == ("problem", f"{tmp_path / 'file'}: Not a directory")


def test_config_that_asks_for_more_memory_than_there_is_gets_a_warning() -> None:
    config = build_config({"name": "digits", "feed": {"memory_limit": "6 GB"}})
    assert doctor._memory(4 * 10**9, config) == doctor.Finding(
        name="memory",
        status="warning",
        found="4.0 GB for all processes, feed.memory_limit=6 GB",
        fix="set feed.memory_limit to half of it: '2000 MB'",
    )
    assert doctor._memory(8 * 10**9, config).status == "ok"
