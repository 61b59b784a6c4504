"""Doctor: what this machine has and lacks for a run, and how to mend it. Imports no TensorFlow: it asks a child."""

import importlib.metadata
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import tasks
from tasks.config import Config, load_config
from tasks.deployment import DeployConfig
from tasks.errors import ConfigError, WorkerError
from tasks.host.backlog import backlog_findings
from tasks.host.finding import Finding
from tasks.host.fit import fit_findings
from tasks.host.gpu import ask_nvidia_smi, stack_findings
from tasks.host.servers import mlflow_findings, prefect_findings
from tasks.memory import memory_limit_bytes
from tasks.track.client import default_uri
from tasks.workers import launch
from tasks.workers.locks import locks_folder

_STACK = ("tensorflow", "keras", "prefect", "mlflow")  # the packages whose releases we depend on closely
_LOW_SHARED_BYTES = 10**9  # NVIDIA's advice for containers
_LOW_DISK_BYTES = 5 * 10**9  # room for some runs of a small model; a real data set needs its own size on top


def examine(config_path: Path | None, overrides: Sequence[str], workspace: Path) -> list[Finding]:
    """Returns what was found of packages, devices, memory, workspace, servers, runs and the config; changes nothing.

    The config is looked at if its path is given.
    """
    config, findings = _config(config_path, tuple(overrides))
    folder = [config.model.folder] if config is not None and config.model.folder else []
    described, devices = _devices()
    pool = (config.deploy if config is not None else DeployConfig()).work_pool
    uri = config.tracking.uri if config is not None else None
    limit_bytes = memory_limit_bytes()
    return [
        Finding(name="python", status="ok", found=f"{platform.python_version()} at {sys.executable}"),
        *_packages(_requirements(), _installed),
        *_own_packages([*folder, *sys.path]),
        *findings,
        *devices,
        *_shared_memory(Path("/dev/shm"), num_gpus=_num_gpus(described)),  # noqa: S108 - where NCCL puts its own
        *_workspace(workspace),
        *prefect_findings(pool, _installed("prefect")),
        *mlflow_findings(uri or default_uri(workspace), _installed("mlflow")),
        *backlog_findings(workspace, locks_folder()),
        _memory(limit_bytes, config),
        *_fit(config, workspace, described, limit_bytes),
    ]


def _config(path: Path | None, overrides: tuple[str, ...]) -> tuple[Config | None, list[Finding]]:
    if path is None:
        return None, []
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        return None, [Finding(name="config", status="problem", found=str(error), fix="correct what each line names")]
    return config, [Finding(name="config", status="ok", found=f"{path}: valid")]


def _requirements() -> list[Requirement] | None:
    """Returns what pyproject.toml requires, None if millstream is not installed."""
    try:
        return [Requirement(text) for text in importlib.metadata.requires("millstream") or ()]
    except importlib.metadata.PackageNotFoundError:
        return None


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages(requirements: list[Requirement] | None, installed: Callable[[str], str | None]) -> list[Finding]:
    """Compares the installed releases of the stack with the required ranges; imports none of them."""
    if requirements is None:
        return [Finding(name="millstream", status="problem", found="not installed", fix="run `make setup`")]
    findings = []
    for requirement in requirements:
        if requirement.name not in _STACK or requirement.marker is not None:  # a marker: an extra
            continue
        version = installed(requirement.name)
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        findings.append(
            Finding(
                name=requirement.name,
                status="ok" if fits else "problem",
                found=version or "not installed",
                fix="" if fits else f"must be {requirement.specifier}; run `make setup`",
            )
        )
    return findings


def _own_packages(path: list[str]) -> list[Finding]:
    """Looks for `tasks` and `flows` along an import path as a worker does: the config's folder comes first there."""
    project = Path(tasks.__file__).resolve().parents[1]
    findings = []
    for name in ("tasks", "flows"):
        spec = PathFinder.find_spec(name, path)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        ours = origin == project / name / "__init__.py"
        findings.append(
            Finding(
                name=f"package {name}",
                status="ok" if ours else "problem",
                found=str(origin.parent if ours and origin else origin or "not found"),
                fix="" if ours else f"must be {project / name}; rename what takes its place, or run `make setup`",
            )
        )
    return findings


def _devices() -> tuple[dict[str, Any], list[Finding]]:
    with tempfile.NamedTemporaryFile(prefix="millstream-doctor-", suffix=".log", delete=False) as file:
        log = Path(file.name)
    try:
        described = launch.call("tasks.workers.devices:describe_devices", {}, log=log)
    except WorkerError as error:
        return {}, [Finding(name="devices", status="problem", found=str(error), fix=f"read {log}")]
    log.unlink()
    requirements = importlib.metadata.requires("tensorflow") or []
    return described, [*_device_findings(described), *stack_findings(described, ask_nvidia_smi(), requirements)]


def _fit(config: Config | None, workspace: Path, described: dict[str, Any], limit_bytes: int) -> Iterable[Finding]:
    if config is None:
        return []
    return fit_findings(config, workspace, num_gpus=_num_gpus(described), limit_bytes=limit_bytes)


def _num_gpus(described: dict[str, Any]) -> int:
    return sum(name.startswith("GPU") for name in described.get("devices", ()))


def _device_findings(described: dict[str, Any]) -> list[Finding]:
    """Says what `tasks.workers.devices.describe_devices` means for a run."""
    missing = ", ".join(described["missing_libraries"])
    has_gpu = any(name.startswith("GPU") for name in described["devices"])
    has_driver = "libcuda.so.1" not in described["missing_libraries"]
    devices = Finding(name="devices", status="ok", found=", ".join(described["devices"]))
    if not described["built_with_cuda"]:
        cuda = Finding(name="cuda", status="ok", found="this TensorFlow is built for CPUs only")
    elif not missing:
        cuda = Finding(name="cuda", status="ok", found="every library that TensorFlow wants")
    elif has_driver and not has_gpu:
        cuda = Finding(
            name="cuda", status="problem", found=f"a driver, but not {missing}", fix="run `make setup GPU=1`"
        )
    elif has_driver:
        cuda = Finding(name="cuda", status="warning", found=f"lacks {missing}", fix="run `make setup GPU=1`")
    else:
        cuda = Finding(
            name="cuda",
            status="ok",
            found=f"no NVIDIA driver: training runs on the CPU (lacks {missing})",
            fix="only for a machine with GPUs: install NVIDIA's driver, then run `make setup GPU=1`",
        )
    return [devices, cuda]


def _workspace(workspace: Path) -> list[Finding]:
    """Tries to write where the workspace is or would be."""
    place = next(folder for folder in (workspace, *workspace.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = "set MILLSTREAM_WORKSPACE to a folder that can be written"
        return [Finding(name="workspace", status="problem", found=f"{place}: {error.strerror}", fix=fix)]
    free_bytes = shutil.disk_usage(place).free
    low = free_bytes < _LOW_DISK_BYTES
    others = workspace.exists() and workspace.stat().st_mode & 0o077
    return [
        Finding(
            name="workspace",
            status="warning" if others else "ok",
            found=f"{workspace}: can be written" + (", and other users may look into it" if others else ""),
            fix=f"chmod 700 {workspace}" if others else "",
        ),
        Finding(
            name="disk",
            status="warning" if low else "ok",
            found=f"{_size(free_bytes)} free at {place}",
            fix="free some, or set MILLSTREAM_WORKSPACE to a larger disk" if low else "",
        ),
    ]


def _shared_memory(place: Path, *, num_gpus: int) -> list[Finding]:
    """NCCL exchanges gradients through shared memory; containers have 64 MB of it unless told."""
    if not place.is_dir():
        return []
    size_bytes = shutil.disk_usage(place).total
    low = num_gpus > 1 and size_bytes < _LOW_SHARED_BYTES
    return [
        Finding(
            name="shared memory",
            status="warning" if low else "ok",
            found=f"{_size(size_bytes)} at {place}" + (f", little for NCCL on {num_gpus} GPUs" if low else ""),
            fix="start the container with --shm-size=1g or more" if low else "",
        )
    ]


def _memory(limit_bytes: int, config: Config | None) -> Finding:
    asked = config.feed.memory_limit if config is not None else None
    fits = asked is None or asked.size_bytes < limit_bytes
    return Finding(
        name="memory",
        status="ok" if fits else "warning",
        found=f"{_size(limit_bytes)} for all processes" + ("" if fits else f", feed.memory_limit={asked}"),
        fix="" if fits else f"set feed.memory_limit to half of it: '{limit_bytes // 2_000_000} MB'",
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 10**9:.1f} GB"
