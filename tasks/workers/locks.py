"""Device locks: on each GPU of this host one run at a time, whoever started it."""

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tasks.distribution import Distribute, Mirrored, ModelParallel, OneDevice
from tasks.errors import RunError
from tasks.files import lock, write_atomic
from tasks.workers.cluster import visible_gpus

CPU = "cpu"  # where there is no GPU, the processors are one device
logger = logging.getLogger("millstream")


def wanted_devices(
    distribute: Distribute, environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")
) -> list[str]:
    """Returns the names of the devices that a run takes, sorted: GPUs by number or uuid, or the CPU."""
    return [f"gpu-{name}" for name in sorted(wanted_gpus(distribute, environment, devices))] or [CPU]


def wanted_gpus(
    distribute: Distribute, environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")
) -> list[str]:
    """Returns the names by which CUDA knows the GPUs that a run takes, in TensorFlow's order.

    They are the first of CUDA_VISIBLE_DEVICES, else of all there are; nothing of CUDA or TensorFlow is loaded.
    """
    gpus = visible_gpus(environment, devices)
    match distribute:
        case Mirrored(devices=tuple(numbers)):
            gpus, number = [gpus[index] for index in numbers if index < len(gpus)], len(numbers)
        case OneDevice():
            number = 1
        case ModelParallel():
            number = distribute.total_devices
        case Mirrored(num_replicas=int(count)):
            number = count
        case _:
            number = len(gpus)
    return gpus[:number]


def locks_folder() -> Path:
    """Returns where the locks of this host's devices lie."""
    default = Path(tempfile.gettempdir()) / f"millstream-locks-{os.getuid()}"
    return Path(os.environ.get("MILLSTREAM_LOCKS") or default)


@contextmanager
def held_devices(distribute: Distribute, *, run_id: str) -> Iterator[None]:
    """Holds the run's devices; waits for them, or raises RunError, as `distribute.when_busy` says.

    The locks end with this process, however it ends. They lie in MILLSTREAM_LOCKS, by default a folder of this user's
    among the temporary files: users who share GPUs set it to one that they share.
    """
    folder = locks_folder()
    with ExitStack() as held:
        for device in wanted_devices(distribute):  # in one order for all, so that two never wait for each other
            path, holder = folder / f"{device}.lock", folder / f"{device}.json"
            try:
                held.enter_context(lock(path, timeout_seconds=0))
            except TimeoutError:
                by = _describe(holder)
                if distribute.when_busy == "refuse":
                    raise RunError(
                        f"{device} is held by {by}, and distribute.when_busy=refuse; wait for it, or take other "
                        "devices with CUDA_VISIBLE_DEVICES"
                    ) from None
                logger.info("waits for %s, held by %s", device, by)
                held.enter_context(lock(path))
            write_atomic(holder, json.dumps({"run": run_id, "pid": os.getpid()}).encode())
        yield


def _describe(holder: Path) -> str:
    try:
        found = json.loads(holder.read_bytes())
    except (OSError, ValueError):  # not written yet
        return "another run"
    return f"run {found['run']} (process {found['pid']})"
