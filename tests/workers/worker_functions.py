"""What the children of these tests run."""

import ctypes
import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

from tasks.distribution import Mirrored, OneDevice
from tasks.errors import ConfigError
from tasks.workers.child import progress, stop_requested


def describe_process(**arguments: Any) -> dict[str, Any]:
    sys.stdout.write("said on stdout\n")
    sys.stderr.write("said on stderr\n")
    return {
        "arguments": arguments,
        "pid": os.getpid(),
        "value": os.environ.get("MILLSTREAM_TEST_VALUE"),
        "folder": os.getcwd(),
        "first_path": sys.path[0],
        "stdin": sys.stdin.read(),
    }


def count(until: int) -> dict[str, Any]:
    for number in range(until):
        progress("count", number=number)
    return {"numbers": list(range(until))}


def raise_config_error(message: str) -> dict[str, Any]:
    raise ConfigError(message)


def raise_value_error() -> dict[str, Any]:
    raise ValueError("nothing a user can mend")


def return_no_json() -> dict[str, Any]:
    return {"value": object()}


def leave(code: int) -> dict[str, Any]:
    os._exit(code)


def segfault() -> dict[str, Any]:
    ctypes.string_at(0)
    return {}


def be_killed() -> dict[str, Any]:
    os.kill(os.getpid(), 9)
    return {}


def work_until_told(receipt: str) -> dict[str, Any]:
    """Works in short steps, and writes a checkpoint of sorts when it is told to stop."""
    progress("ready", pid=os.getpid(), server=os.getppid())
    while not stop_requested():
        time.sleep(0.01)
    Path(receipt).write_text("saved")
    return {"stopped": True}


def ignore_all() -> dict[str, Any]:
    """Never looks whether it should stop."""
    progress("ready", pid=os.getpid(), server=os.getppid())
    while True:
        time.sleep(60)


def hang_in(phases: list[str]) -> dict[str, Any]:
    """Goes through phases and is silent in the last."""
    for phase in phases:
        progress(phase)
    time.sleep(10**6)
    return {}


def meet_read_only_disk() -> dict[str, Any]:
    raise OSError(errno.EROFS, "Read-only file system", "/data/events.jsonl")


def sum_over_replicas(distribute: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    from tasks.workers.devices import open_strategy

    section = OneDevice if distribute["kind"] == "one_device" else Mirrored
    strategy = open_strategy(section.model_validate(distribute))

    @tf.function
    def step() -> Any:
        ones = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1)))
        return strategy.experimental_local_results(ones)

    return {
        "num_replicas": strategy.num_replicas_in_sync,
        "sums": [int(value) for value in step()],
        "devices": [device.rpartition("device:")[2] for device in strategy.extended.worker_devices],
    }
