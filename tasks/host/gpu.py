"""GPU stack: whether driver, CUDA libraries, TensorFlow and Keras fit each other, said by name."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from tasks.host.finding import Finding

# The oldest Linux driver that runs programs of a CUDA release, by minor version compatibility; from NVIDIA's release
# notes of the CUDA Toolkit.
_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
_SAYS_NO = "NVIDIA-SMI has failed"
_MISMATCH = "Driver/library version mismatch"


def ask_nvidia_smi() -> str | None:
    """Returns all that nvidia-smi prints; None if there is no such program, and so no driver of NVIDIA's."""
    if shutil.which("nvidia-smi") is None:
        return None
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired:
        return f"{_SAYS_NO}: no answer within 30 s"
    return done.stdout + done.stderr


def stack_findings(described: Mapping[str, Any], smi: str | None, requirements: Sequence[str]) -> Iterator[Finding]:
    """Yields what does not fit, or one finding that all does.

    `described`: what `tasks.workers.devices.describe_devices` returns; `smi`: what nvidia-smi printed, None without it;
    `requirements`: of the installed TensorFlow, as its metadata lists them.
    """
    problems = [*_keras(described, requirements), *_driver(described, smi)]
    yield from problems
    if not problems:
        driver = _search(r"Driver Version:\s*([\d.]+)", smi or "")
        yield Finding(
            name="stack",
            status="ok",
            found=f"TensorFlow {described['tensorflow']} with Keras {described['keras']}"
            + (f", driver {driver}, CUDA {_cuda(described)}" if driver else ""),
        )


def _keras(described: Mapping[str, Any], requirements: Sequence[str]) -> Iterator[Finding]:
    for requirement in map(Requirement, requirements):
        if requirement.name == "keras" and not requirement.specifier.contains(described["keras"], prereleases=True):
            yield Finding(
                name="keras and tensorflow",
                status="problem",
                found=f"TensorFlow {described['tensorflow']} wants keras{requirement.specifier}, "
                f"installed is {described['keras']}",
                fix="run `make setup`, or install the Keras that this TensorFlow wants",
            )


def _driver(described: Mapping[str, Any], smi: str | None) -> Iterator[Finding]:
    if smi is None:
        return
    if _MISMATCH in smi:
        yield Finding(
            name="driver",
            status="problem",
            found="the driver's kernel module and its libraries are of different releases, as after an update",
            fix="restart the machine, or unload and load the module nvidia",
        )
        return
    driver, newest = _search(r"Driver Version:\s*([\d.]+)", smi), _search(r"CUDA Version:\s*([\d.]+)", smi)
    if driver is None:
        yield Finding(
            name="driver",
            status="problem",
            found=f"nvidia-smi reaches no driver: {' '.join(smi.split())[:200]}",
            fix="load the module nvidia (`modprobe nvidia`) or install the driver again; "
            "in a container, start it with the GPUs (`--gpus all`)",
        )
        return
    cuda = _cuda(described)
    if not described["built_with_cuda"] or cuda is None:
        yield Finding(
            name="driver and tensorflow",
            status="problem",
            found=f"driver {driver} is there, but TensorFlow {described['tensorflow']} is built for CPUs only",
            fix="run `make setup GPU=1`",
        )
        return
    oldest = _OLDEST_DRIVER.get(cuda)
    if oldest is not None and Version(driver) < Version(oldest):
        yield Finding(
            name="driver and cuda",
            status="problem",
            found=f"driver {driver} runs CUDA up to {newest or 'an older release'}; TensorFlow "
            f"{described['tensorflow']} is built for CUDA {cuda}, which needs driver {oldest} or newer",
            fix=f"install NVIDIA's driver {oldest} or newer",
        )
        return
    num_seen = sum(name.startswith("GPU") for name in described["devices"])
    num_there = len(re.findall(r"^\|\s+\d+\s+\S.*\|\s+[0-9A-Fa-f]{8}:", smi, re.MULTILINE))
    if num_seen < num_there and not described["missing_libraries"]:
        yield Finding(
            name="gpus",
            status="warning",
            found=f"nvidia-smi lists {num_there} GPU(s), TensorFlow sees {num_seen}",
            fix="look at CUDA_VISIBLE_DEVICES, and at the log of the worker for a GPU that TensorFlow left out",
        )


def _cuda(described: Mapping[str, Any]) -> int | None:
    """Returns the CUDA release that TensorFlow was built for."""
    major = str(described["cuda_version"]).partition(".")[0]
    return int(major) if described["built_with_cuda"] and major else None


def _search(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found[1] if found else None
