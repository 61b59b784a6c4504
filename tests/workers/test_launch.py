"""A call runs in a process of its own, and whatever happens to either side is known and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from tasks.errors import ConfigError, DataError, RunError, WorkerError, WorkerLost
from tasks.files import lock
from tasks.workers.calls import SLOW_PHASES
from tasks.workers.child import progress, stop_requested

HERE = Path(__file__).parent
Call = Callable[..., dict[str, Any]]

# A flow process: it calls a function that never ends, and prints what happens as it happens.
CALL = """
import os, signal, sys
from pathlib import Path
from tasks.workers import launch

def on_progress(report):
    print(report["pid"], report["server"], flush=True)
    if "kill the server" in sys.argv:
        os.kill(report["server"], signal.SIGKILL)

try:
    launch.call(
        "worker_functions:ignore_all", {}, log=Path(sys.argv[1]), import_path=[sys.argv[2]], on_progress=on_progress
    )
except BaseException as error:
    print(f"{type(error).__name__}: {error}", flush=True)
print("tensorflow" in sys.modules, flush=True)
"""

# A flow process that forks while its server is importing: the fork stays, the flow process ends the server.
FORK = """
import os, psutil, signal
from tasks.workers import launch

launch.warm_up()
(server,) = psutil.Process().children()
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    launch.shut_down()
    os.write(writer, b"x")
    signal.pause()
os.read(reader, 1)
print(server.is_running(), flush=True)
launch.shut_down()
print(server.is_running(), flush=True)
os.kill(pid, signal.SIGKILL)
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "worker.log"


@pytest.fixture
def call(workers: ModuleType, log: Path) -> Call:
    """Calls a function of worker_functions.py."""

    def call(function: str, arguments: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        name = f"worker_functions:{function}"
        return workers.call(name, arguments or {}, log=log, import_path=[str(HERE)], **options)

    return call


def test_arguments_go_in_and_the_result_comes_back(call: Call) -> None:
    assert call("describe_process", {"a": [1, 2.5, None], "b": {"c": "ü"}})["arguments"] == {
        "a": [1, 2.5, None],
        "b": {"c": "ü"},
    }


def test_environment_folder_and_import_path_are_those_of_the_call(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_TEST_VALUE", "set after the server had started")
    found = call("describe_process")
    assert found["value"] == "set after the server had started"
    assert found["folder"] == str(tmp_path)
    assert found["first_path"] == str(HERE)
    assert found["stdin"] == ""
    assert call("describe_process", environments=[{"MILLSTREAM_TEST_VALUE": "given"}])["value"] == "given"


def test_every_call_has_its_own_process_and_adds_to_its_log(call: Call, log: Path) -> None:
    first, second = call("describe_process"), call("describe_process")
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert log.read_text().count("said on stdout\n") == 2
    assert log.read_text().count("said on stderr\n") == 2


def test_progress_arrives_in_order_and_a_long_result_whole(call: Call) -> None:
    seen: list[dict[str, Any]] = []
    assert call("count", {"until": 5000}, on_progress=seen.append) == {"numbers": list(range(5000))}
    assert [(report["phase"], report["number"]) for report in seen] == [("count", number) for number in range(5000)]


def test_outside_a_worker_progress_does_nothing_and_no_stop_is_requested() -> None:
    progress("train", step=1)
    assert not stop_requested()


def test_an_error_that_a_user_can_mend_keeps_class_and_message(call: Call) -> None:
    with pytest.raises(ConfigError) as error:
        call("raise_config_error", {"message": "train.seed='x': must be a number"})
    assert type(error.value) is ConfigError
    assert str(error.value) == "train.seed='x': must be a number"


def test_an_unexpected_error_names_the_log_and_ends_with_the_traceback(call: Call, log: Path) -> None:
    with pytest.raises(WorkerError) as error:
        call("raise_value_error")
    assert str(error.value) == (
        f"worker_functions:raise_value_error failed, its traceback is in {log}: ValueError: nothing a user can mend"
    )
    assert "in raise_value_error\n" in log.read_text()


def test_a_result_that_is_no_json_is_an_error(call: Call) -> None:
    with pytest.raises(WorkerError, match=r"TypeError: Object of type object is not JSON serializable$"):
        call("return_no_json")


@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_process_that_leaves_without_a_result_is_an_error(call: Call, log: Path, code: int) -> None:
    with pytest.raises(WorkerLost) as error:
        call("leave", {"code": code})
    assert str(error.value) == (
        f"worker_functions:leave ended with exit code {code} before it returned; see the end of {log}"
    )


def test_a_crash_is_named_and_its_stack_is_in_the_log(call: Call, log: Path) -> None:
    with pytest.raises(WorkerLost) as error:
        call("segfault")
    assert str(error.value) == f"worker_functions:segfault was killed by SIGSEGV; see {log}"
    assert "Fatal Python error: Segmentation fault" in log.read_text()
    assert "in segfault\n" in log.read_text()


def test_a_kill_is_named_with_its_likely_reason(call: Call, log: Path) -> None:
    with pytest.raises(WorkerLost) as error:
        call("be_killed")
    assert str(error.value) == (
        f"worker_functions:be_killed was killed by SIGKILL (often the system's out-of-memory killer); see {log}"
    )


def test_a_child_holds_its_lock_for_life(call: Call, tmp_path: Path) -> None:
    path, held = tmp_path / "lock", []

    def on_progress(report: dict[str, Any]) -> None:
        with pytest.raises(TimeoutError), lock(path, timeout_seconds=0):
            pass
        held.append(report["pid"])
        os.kill(report["pid"], signal.SIGKILL)

    with pytest.raises(WorkerLost):
        call("ignore_all", lock=path, on_progress=on_progress)
    assert len(held) == 1
    with lock(path, timeout_seconds=0):
        pass


def test_a_child_whose_lock_is_held_is_refused_before_any_work(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path), pytest.raises(RunError) as refused:
        call("ignore_all", lock=path, on_progress=lambda report: pytest.fail("it is at work"))
    assert str(refused.value) == (
        f"{path}: is held by another worker, which is at work on the same directory; wait for it or stop it, then give "
        "the same command again"
    )


def test_sigterm_lets_the_child_finish_and_report(call: Call, tmp_path: Path) -> None:
    def on_progress(report: dict[str, Any]) -> None:
        os.kill(report["pid"], signal.SIGTERM)

    assert call("work_until_told", {"receipt": str(tmp_path / "receipt")}, on_progress=on_progress) == {"stopped": True}


def test_a_second_sigterm_ends_the_child_at_once(call: Call) -> None:
    def on_progress(report: dict[str, Any]) -> None:
        os.kill(report["pid"], signal.SIGTERM)
        time.sleep(0.2)  # two at once are one to the kernel
        os.kill(report["pid"], signal.SIGTERM)

    with pytest.raises(WorkerError, match="ended with exit code 143 before it returned") as error:
        call("ignore_all", on_progress=on_progress)
    assert type(error.value) is WorkerError, "it was told to end, so it is not one to start again"


def test_an_interrupt_stops_the_child_after_it_saved(call: Call, tmp_path: Path) -> None:
    pids: list[int] = []

    def on_progress(report: dict[str, Any]) -> None:
        pids.append(report["pid"])
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        call("work_until_told", {"receipt": str(tmp_path / "receipt")}, on_progress=on_progress)
    assert (tmp_path / "receipt").read_text() == "saved"
    assert not psutil.pid_exists(pids[0])


def test_after_the_grace_an_interrupted_child_is_killed(call: Call) -> None:
    pids: list[int] = []

    def on_progress(report: dict[str, Any]) -> None:
        pids.append(report["pid"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call("ignore_all", on_progress=on_progress, stop_grace_seconds=0.2)
    assert not psutil.pid_exists(pids[0])


def test_a_hang_is_noticed_and_the_stacks_of_all_workers_are_in_their_logs(call: Call, log: Path) -> None:
    others_log = log.with_name("worker.1.log")
    pids: list[int] = []
    with pytest.raises(WorkerLost) as error:
        call(
            "ignore_all",
            environments=[{}, {}],
            on_progress=lambda report: pids.append(report["pid"]),
            hang_timeout_seconds=1,
            stop_grace_seconds=0.2,
        )
    # Whichever is the first to be silent for so long.
    assert str(error.value).replace(str(others_log), str(log)) == (
        "worker_functions:ignore_all made no progress for 1 s in its phase 'ready' and was stopped; the stacks of its "
        f"threads are in {log}; if it may be silent so long, raise distribute.hang_timeout_seconds"
    )
    assert all("in ignore_all\n" in file.read_text() for file in (log, others_log))
    assert not psutil.pid_exists(pids[0])


@pytest.mark.parametrize("phase", ["steps", "predict", *sorted(SLOW_PHASES)])
def test_a_hang_is_noticed_in_each_phase_within_its_own_limit(call: Call, phase: str) -> None:
    slow = phase in SLOW_PHASES
    with pytest.raises(WorkerLost) as error:
        call(
            "hang_in",
            {"phases": ["steps" if slow else "compile", phase, "note"]},
            hang_timeout_seconds=0.2,
            slow_phase_factor=2,
            stop_grace_seconds=0.1,
        )
    said = str(error.value)
    assert f"made no progress for {0.4 if slow else 0.2} s in its phase {phase!r} and was stopped" in said
    assert said.endswith("raise distribute." + ("slow_phase_factor" if slow else "hang_timeout_seconds"))


def test_a_disk_that_refuses_is_told_as_what_a_user_can_mend(call: Call) -> None:
    with pytest.raises(DataError) as error:
        call("meet_read_only_disk")
    assert str(error.value) == (
        "/data/events.jsonl: cannot be used (Read-only file system); make room or give access, and the same command "
        "goes on"
    )


def test_kill_9_of_the_flow_process_leaves_neither_child_nor_server(tmp_path: Path) -> None:
    with start(CALL, tmp_path) as process:
        pids = [int(pid) for pid in line(process).split()]
        process.kill()
        assert_gone(pids)


def test_kill_9_of_the_server_is_told_once_its_child_is_gone_too(tmp_path: Path) -> None:
    with start(CALL, tmp_path, "kill the server") as process:
        pids = [int(pid) for pid in line(process).split()]
        assert line(process) == (
            "WorkerLost: worker_functions:ignore_all was lost: the worker server was killed by SIGKILL "
            "(often the system's out-of-memory killer); run it again"
        )
        assert_gone(pids, within_seconds=1)  # the child outlived its server by 4 s; the kernel may be tidying up still
        assert line(process) == "False"  # TensorFlow was never imported on this side


def test_kill_9_of_the_flow_process_ends_a_server_that_is_still_importing(tmp_path: Path) -> None:
    with start(CALL, tmp_path) as process:
        pids = [server_of(process)]
        process.kill()
        assert_gone(pids)


def test_an_interrupt_does_not_wait_for_the_import(tmp_path: Path) -> None:
    with start(CALL, tmp_path) as process:
        server = server_of(process)
        process.send_signal(signal.SIGINT)
        assert line(process) == "KeyboardInterrupt:"
        assert_gone([server])


def test_a_tensorflow_that_cannot_be_imported_is_told_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libsomething.so is missing')")
    with start(CALL, tmp_path, python_path=str(tmp_path)) as process:
        assert line(process) == (
            "WorkerError: worker_functions:ignore_all was lost: the worker server ended with exit code 1: "
            "ImportError: libsomething.so is missing; run it again"
        )


def test_a_fork_of_the_flow_process_neither_ends_the_server_nor_keeps_it(tmp_path: Path) -> None:
    with start(FORK, tmp_path) as process:
        assert line(process) == "True"
        assert line(process) == "False"


def start(script: str, tmp_path: Path, *options: str, python_path: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log"), str(HERE), *options],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), python_path])},
    )


def server_of(process: subprocess.Popen[str]) -> int:
    while not (children := psutil.Process(process.pid).children()):
        time.sleep(0.01)
    while "tasks.workers.server" not in children[0].cmdline():  # not yet: the fork before the exec
        time.sleep(0.01)
    return int(children[0].pid)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def assert_gone(pids: list[int], *, within_seconds: float = 10) -> None:
    """Fails unless all of the processes end in time: after 4 s they are killed."""
    deadline = time.monotonic() + within_seconds
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"of {pids} are still alive: {[pid for pid in pids if is_alive(pid)]}"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
