"""On each device of a host one run at a time, whoever started it."""

import subprocess
import sys
import threading

import pytest

from tasks.distribution import Hybrid, Mirrored, ModelParallel, MultiWorkerMirrored, OneDevice
from tasks.errors import RunError
from tasks.workers.locks import held_devices, wanted_devices

HOLDING = """
import sys
from tasks.distribution import Mirrored
from tasks.workers.locks import held_devices
with held_devices(Mirrored(), run_id="other"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def host(tmp_path):
    """A host with four GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("distribute", "visible", "names"),
    [
        (Mirrored(), None, ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        (Mirrored(num_replicas=2), None, ["gpu-0", "gpu-1"]),
        (Mirrored(devices=(0, 2)), None, ["gpu-0", "gpu-2"]),
        (MultiWorkerMirrored(), None, ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        (ModelParallel(), None, ["gpu-0", "gpu-1"]),
        (Hybrid(), None, ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]),
        (OneDevice(), None, ["gpu-0"]),
        (Mirrored(), "3,1", ["gpu-1", "gpu-3"]),
        (OneDevice(), "3,1", ["gpu-3"]),
        (Mirrored(), "GPU-8932f937", ["gpu-GPU-8932f937"]),
        (Mirrored(), "", ["cpu"]),
        (Mirrored(), "-1", ["cpu"]),
    ],
)
def test_a_run_takes_the_visible_gpus_it_was_told_to_or_the_first(host, distribute, visible, names):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert wanted_devices(distribute, environment, host) == names


def test_without_a_gpu_a_run_takes_the_processors(tmp_path):
    assert wanted_devices(Mirrored(num_replicas=4), {}, tmp_path) == ["cpu"]


@pytest.fixture
def other(tmp_path, monkeypatch):
    """Another process that holds the devices of this host."""
    monkeypatch.setenv("MILLSTREAM_LOCKS", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_busy_devices_are_refused_with_the_run_and_process_that_hold_them(other):
    with (
        pytest.raises(RunError, match=rf"is held by run other \(process {other.pid}\)"),
        held_devices(Mirrored(when_busy="refuse"), run_id="mine"),
    ):
        pass


def test_the_locks_of_a_killed_process_are_free(other):
    other.kill()
    other.wait()
    with held_devices(Mirrored(when_busy="refuse"), run_id="mine"):
        pass


def test_a_waiting_run_says_for_whom_and_begins_when_the_other_ends(other, caplog):
    caplog.set_level("INFO", "millstream")
    threading.Timer(0.5, other.stdin.close).start()
    with held_devices(Mirrored(), run_id="mine"):
        assert other.wait(10) == 0
    assert f"held by run other (process {other.pid})" in caplog.text
