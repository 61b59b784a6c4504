"""The child: one call of one function, in a process that was forked for it and ends with it."""

import contextlib
import faulthandler
import importlib
import json
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tasks.errors import DataError, MillstreamError, RunError, Stopped, needs_the_user
from tasks.files import lock_for_life
from tasks.secrets import scrub
from tasks.workers.network import join_network, leave_network

ORPHAN_GRACE_SECONDS = 4.0  # between SIGTERM and the end, once the flow process or the server is gone
TOLD_TWICE = 128 + signal.SIGTERM  # exit code of a worker that did not end at the first SIGTERM
LOCK_TIMEOUT_SECONDS = ORPHAN_GRACE_SECONDS + 2  # whoever holds it longer is no orphan
# TensorFlow's errors in a worker whose collective lost another worker, or whose own service could not begin.
PEER_LOST = frozenset({"UnavailableError", "AbortedError", "DeadlineExceededError", "CancelledError", "UnknownError"})
# In the messages of TensorFlow's errors when a GPU or its driver failed: a new process may find it well, or gone.
_DEVICE_FAILED = re.compile(
    "CUDA_ERROR_(?!NO_BINARY|INVALID_PTX|UNSUPPORTED)"  # which no other process would find mended
    "|_STATUS_EXECUTION_FAILED|_STATUS_INTERNAL_ERROR|unhandled cuda error"
)
_PART_LENGTH = 1024  # characters of ASCII JSON; at most doubled by being quoted once more


@dataclass
class _Current:
    """What this process is doing; in a process that is no worker it stays as it is here."""

    call: int = 0
    reports: int | None = None
    stop: bool = False


_current = _Current()


def progress(phase: str, **fields: Any) -> None:
    """Tells the flow process how far the call has come, and that it is alive; does nothing outside a worker.

    `fields` are JSON values; the whole message must stay below 4 KB.
    """
    if _current.reports is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = {"memory_bytes": pages * os.sysconf("SC_PAGE_SIZE")}
        write_report(_current.reports, {"call": _current.call, "phase": phase, **memory, **fields})


def stop_requested() -> bool:
    """Returns whether this worker was asked to end: finish the step, write the checkpoint, return."""
    return _current.stop


def stop_if(requested: bool) -> None:
    """Raises Stopped if a worker was asked to end; for work that leaves nothing half done when it is left."""
    if requested:
        raise Stopped("stopped by a signal; the same command goes on")


def answer_sigterm() -> None:
    """Makes SIGTERM a request to end, in a worker; once more after TensorFlow has taken the signal for itself."""
    if _current.reports is not None:
        signal.signal(signal.SIGTERM, _on_sigterm)


def write_report(descriptor: int, report: dict[str, Any]) -> None:
    """Writes one JSON line in one piece, so that children that share the pipe never mix theirs."""
    line = json.dumps(report).encode() + b"\n"
    assert len(line) <= select.PIPE_BUF, f"a report of {len(line)} bytes is not atomic: {line[:80]!r}"
    # Without a reader the flow process is dead. SIGTERM is on its way; until then work goes on to its checkpoint.
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, line)


def run(request: dict[str, Any], *, reports: int, alive: int, chief: int | None = None) -> NoReturn:
    """Carries out a request of `tasks.workers.launch` and ends the process: 0 with a result, 1 with an error.

    `reports`: where JSON lines go. `alive`: read end of a pipe that is at its end when the server is. `chief`: process
    id of the child whose network this one is to share, if it is not the first of them.
    """
    code = 1
    try:
        try:
            _settle(request, reports, alive, chief)
            _take_lock(request["lock"])
            module, _, name = request["function"].partition(":")
            function = getattr(importlib.import_module(module), name)
            if not module.startswith("tasks.download."):  # a reader of the user's may be written for it
                function = without_autograph(function)
            outcome = json.dumps({"result": function(**request["arguments"])})
            code = 0
        except BaseException as error:  # noqa: BLE001 - told to the flow process, which raises it again
            with contextlib.suppress(OSError):  # the log's disk may be full; what is told matters more
                print(scrub(traceback.format_exc()), end="", file=sys.stderr)  # noqa: T201
            outcome = json.dumps({"error": {name: scrub(text) for name, text in _describe(error).items()}})
        for start in range(0, len(outcome), _PART_LENGTH):
            write_report(reports, {"call": request["call"], "part": outcome[start : start + _PART_LENGTH]})
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    except BaseException:
        code = 1
        raise
    finally:
        # Not sys.exit: the stack below is the server's, and TensorFlow's threads make a slow and unsafe exit.
        os._exit(code)


def without_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, with AutoGraph switched off for all that it calls.

    It reads and rewrites the source of every function that TensorFlow traces, which is half of what a training takes to
    begin. Nothing here is written for it, and Keras's own training does without it too. A tf.function has to say so
    once more: autograph=False.
    """
    import tensorflow as tf  # has been imported by the server

    return tf.autograph.experimental.do_not_convert(function)


def _settle(request: dict[str, Any], reports: int, alive: int, chief: int | None) -> None:
    """Makes the forked copy of the server a process of its own: log, signals, environment, folder, import path."""
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    if request["network_of"] is not None:
        _settle_network(chief)  # before there is another thread
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)

    _current.call, _current.reports = request["call"], reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the flow process's to answer
    answer_sigterm()
    threading.Thread(target=_end_with_server, args=(alive,), daemon=True).start()

    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["working_directory"])
    sys.path[:0] = request["import_path"]


def _settle_network(chief: int | None) -> None:
    if not (leave_network() if chief is None else join_network(chief)):
        print(  # noqa: T201 - into the worker's log
            "the kernel allows this cluster no network of its own: whoever reaches this host can reach the ports of "
            "its workers, which ask for no password; close them with a firewall",
            file=sys.stderr,
        )


def _take_lock(path: str | None) -> None:
    if path is None:
        return
    try:
        lock_for_life(Path(path), timeout_seconds=LOCK_TIMEOUT_SECONDS)
    except TimeoutError:
        raise RunError(
            f"{path}: is held by another worker, which is at work on the same directory; wait for it or stop it, then "
            "give the same command again"
        ) from None


def _on_sigterm(number: int, frame: Any) -> None:
    if _current.stop:
        os._exit(TOLD_TWICE)
    _current.stop = True


def _end_with_server(alive: int) -> None:
    os.read(alive, 1)  # nobody writes: it returns when the server, which holds the other end, is gone
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_GRACE_SECONDS)
    os._exit(TOLD_TWICE)


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, MillstreamError):
        return {"mendable": type(error).__name__, "message": str(error)}
    if isinstance(error, OSError) and needs_the_user(error):
        where = error.filename or "the disk"
        message = f"{where}: cannot be used ({error.strerror}); make room or give access, and the same command goes on"
        return {"mendable": DataError.__name__, "message": message}
    message = "".join(traceback.format_exception_only(error)).strip()
    if "TF_CONFIG" in os.environ and type(error).__name__ in PEER_LOST:  # whose messages run to pages
        return {"peer": "lost", "message": f"another worker cannot be reached ({type(error).__name__})"}
    if _DEVICE_FAILED.search(message):
        return {"device": "failed", "message": message}
    return {"message": message}
