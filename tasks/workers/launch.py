"""Launch: calls of functions in fresh child processes that have TensorFlow, from a process that has not.

A server (`tasks.workers.server`) belongs to each process that calls: started on demand, ended with it.
"""

import atexit
import contextlib
import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tasks.errors import WorkerError, WorkerLost
from tasks.workers.calls import HINTS, SLOW_PHASES, Call, Limits
from tasks.workers.child import ORPHAN_GRACE_SECONDS

_IMPORT_TIMEOUT_SECONDS = 300.0
_KILL_TIMEOUT_SECONDS = 5.0  # for the kernel to end a process after SIGKILL
_POLL_SECONDS = 0.2  # how long an exception that another thread raises here may have to wait
logger = logging.getLogger("millstream")


def warm_up() -> None:
    """Starts the server if there is none and returns at once, so that TensorFlow is imported during other work."""
    _server.start()


def call(
    function: str,
    arguments: dict[str, Any],
    *,
    log: Path,
    lock: Path | None = None,
    environments: Sequence[Mapping[str, str]] = ({},),
    expendable: Collection[int] = (),
    private_network: bool = False,
    import_path: Sequence[str] = (),
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    hang_timeout_seconds: float = 300,
    slow_phase_factor: float = 1,
    stop_grace_seconds: float = 10,
) -> dict[str, Any]:
    """Returns what `function` ('module:name') returned when it was called with `arguments` in a fresh child process.

    Arguments and result are JSON. The child has the present environment and folder of this process with the first of
    `environments` laid over it, and `import_path` in front of its sys.path; what it prints is added to `log`. It holds
    the file `lock` for life, so that of all children that name the same one is at work. `on_progress` gets what the
    child gives to `tasks.workers.child.progress`. One call at a time; a second thread waits for its turn.

    With several `environments` there is a child for each, which do the work together: the first is their chief, whose
    result, lock, progress and log they are; the second one's log is `log` with .1 before its suffix, and so on. When
    one of them is lost the others are killed, unless its number is one of the `expendable`.

    With `private_network` they can reach each other and nothing else, and nothing else can reach them.

    Whatever is raised here while it waits (KeyboardInterrupt, Prefect's TerminationSignal, an error of `on_progress`)
    first stops the children: SIGTERM, `stop_grace_seconds`, SIGKILL.

    Raises the child's own MillstreamError again; RunError if another process holds `lock`; WorkerLost if the child was
    killed, ended before it returned, or reported nothing for `hang_timeout_seconds`, or in one of SLOW_PHASES for
    `slow_phase_factor` times as long; WorkerError if it failed otherwise or was told to end.
    """
    log = log.absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    team = [
        Call(function, log.with_suffix(f".{n}{log.suffix}" if n else log.suffix), expendable=n in expendable)
        for n in range(len(environments))
    ]
    limits = Limits(hang_timeout_seconds, slow_phase_factor, stop_grace_seconds)
    with _server.turn:
        _server.start()
        try:
            for this, environment in zip(team, environments, strict=True):
                _server.send(
                    {
                        "call": this.number,
                        "function": function,
                        "arguments": arguments,
                        "environment": {**_environment(), **environment},
                        "working_directory": os.getcwd(),
                        "import_path": [os.path.abspath(folder) for folder in import_path],
                        "log": str(this.log),
                        "lock": str(lock.absolute()) if lock and this is team[0] else None,
                        "network_of": team[0].number if private_network else None,
                    }
                )
            return _follow(team, on_progress, limits)
        except _ServerGone as error:
            kind = WorkerLost if error.by_signal else WorkerError
            raise kind(f"{function} was lost: {error}; run it again") from None
        except BaseException:
            _stop(team, stop_grace_seconds)
            raise


def shut_down() -> None:
    """Ends the server and what runs in it; a later call starts another."""
    _server.end()


class _ServerGone(Exception):
    """The server has ended and so have its children; says how it ended."""

    def __init__(self, epitaph: str, *, by_signal: bool) -> None:
        super().__init__(epitaph)
        self.by_signal = by_signal


class _Server:
    """The server process and the two pipes to it."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._unread = b""

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        root = str(Path(__file__).parents[2])
        environment = _environment()
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._process = subprocess.Popen(
            # -P: a `tasks` in the present folder must not take the place of ours.
            [sys.executable, "-P", "-m", "tasks.workers.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            env=environment,
            start_new_session=True,  # a Ctrl-C in the terminal must reach this process only
        )

    def send(self, message: dict[str, Any]) -> None:
        """Sends a request; if the server is gone, `reports` tells."""
        assert self._process is not None
        assert self._process.stdin is not None
        data = memoryview(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[self._process.stdin.write(data) :]

    def reports(self, team: Sequence[Call]) -> Iterator[tuple[Call, dict[str, Any]]]:
        """Yields what has come in about some calls, after a short wait; raises _ServerGone.

        The pipe is at its end when no child holds it any more either, so nothing of the calls is left running.
        """
        calls = {this.number: this for this in team}
        assert self._process is not None
        assert self._process.stdout is not None
        if b"\n" not in self._unread and select.select([self._process.stdout], [], [], _POLL_SECONDS)[0]:
            data = self._process.stdout.read(65536)
            if not data:
                raise self._gone()
            self._unread += data
        while b"\n" in self._unread:
            line, _, self._unread = self._unread.partition(b"\n")
            report = json.loads(line)
            if report["call"] in calls:  # others are the last words of a call that was given up
                yield calls[report["call"]], report

    def end(self) -> None:
        process, log = self._process, self._log
        self._process = self._log = None
        self._unread = b""
        if process is None:
            return
        _close(process.stdin, process.stdout)
        try:
            process.wait(ORPHAN_GRACE_SECONDS + 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        finally:
            _close(log)

    def forget(self) -> None:
        """In a fork of this process: gives up its copy of the pipes, whose last end is the server's sign to end."""
        if self._process is not None:
            _close(self._process.stdin, self._process.stdout, self._log)
            self._process.returncode = 0  # not our child, so there is nothing to wait for
        self.turn = threading.Lock()
        self._process = self._log = None
        self._unread = b""

    def _gone(self) -> _ServerGone:
        assert self._process is not None
        assert self._log is not None
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        if code < 0:
            name = signal.Signals(-code).name
            hint = f" ({HINTS[name]})" if name in HINTS else ""
            return _ServerGone(f"the worker server was killed by {name}{hint}", by_signal=True)
        epitaph = f"the worker server ended with exit code {code}: {lines[-1] if lines else 'no message'}"
        return _ServerGone(epitaph, by_signal=False)


_server = _Server()
os.register_at_fork(after_in_child=_server.forget)
atexit.register(shut_down)


def _environment() -> dict[str, str]:
    """Returns this process's environment as server and children get it."""
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "KERAS_BACKEND": "tensorflow"}


def _follow(
    team: Sequence[Call], on_progress: Callable[[dict[str, Any]], None] | None, limits: Limits
) -> dict[str, Any]:
    """Returns the chief's result, or raises what became of the first child that was lost, fell silent or failed.

    One that is not the chief may fail because the chief does, which then says why: it gets the time to do so.
    """
    chief, failed = team[0], None
    for this in team:
        this.silent_until = time.monotonic() + _IMPORT_TIMEOUT_SECONDS
    while chief.ended is None:
        for this, report in _server.reports(team):
            this.take(report)
            this.silent_until = time.monotonic() + limits.silence_seconds(this.phase)
            if "phase" in report and this is chief and on_progress is not None:
                on_progress(report)
            if "exit" in report and this is not chief and report["exit"] != 0:
                if this.expendable:
                    logger.warning("%s: the others go on without it", this.epitaph())
                    continue
                failed = failed or this
                chief.silent_until = min(chief.silent_until, time.monotonic() + limits.stop_grace_seconds)
                if this.is_lost():
                    this.result()
        for this in team:
            if this.ended is None and time.monotonic() > this.silent_until:
                if failed is not None:
                    failed.result()
                _give_up(this, team, limits)
    try:
        result = chief.result()
    except WorkerLost:
        if failed is not None and not failed.lost_a_peer():
            failed.result()  # for which the chief was waiting in vain
        raise
    _stop(team, 0)
    return result


def _give_up(hung: Call, team: Sequence[Call], limits: Limits) -> None:
    """Raises what is to be said of a child that was silent for too long, after all have written their stacks.

    One without which the others go on is killed instead.
    """
    if hung.expendable:
        hung.silent_until = math.inf
        _server.send({"signal": hung.number, "number": signal.SIGKILL})
        return
    if not hung.begun:
        raise WorkerError(
            f"{hung.function} could not begin: importing TensorFlow took over {_IMPORT_TIMEOUT_SECONDS:g} s; "
            "see what else keeps this machine busy and run it again"
        )
    for this in team:
        _server.send({"signal": this.number, "number": signal.SIGUSR1})  # faulthandler writes the stacks
    raise WorkerLost(
        f"{hung.function} made no progress for {limits.silence_seconds(hung.phase):g} s in its phase {hung.phase!r} "
        f"and was stopped; the stacks of its threads are in {hung.log}; if it may be silent so long, raise distribute."
        + ("slow_phase_factor" if hung.phase in SLOW_PHASES else "hang_timeout_seconds")
    )


def _stop(team: Sequence[Call], grace_seconds: float) -> None:
    """Ends the children of a call and returns when they are gone; a second interrupt cuts the grace short.

    The chief is asked to end, and tells the others if they work with it step by step; those that serve it are ended
    once it is gone. When one was lost that the others cannot do without, there is nothing to wait for.
    """
    if not all(this.begun for this in team):
        _server.end()  # it may still be importing; faster than to wait for that
        return
    try:
        if not any(this.ended and not this.expendable for this in team):
            _signal(team, signal.SIGTERM, grace_seconds, to=team[:1])
    finally:
        _signal(team, signal.SIGKILL, _KILL_TIMEOUT_SECONDS, to=team)
        if any(this.ended is None for this in team):
            _server.end()


def _signal(team: Sequence[Call], number: int, timeout_seconds: float, *, to: Sequence[Call]) -> None:
    """Sends a signal `to` some children if they have not ended, and waits until they have or the time is up."""
    for this in to:
        if this.ended is None:
            _server.send({"signal": this.number, "number": number})
    deadline = time.monotonic() + timeout_seconds
    with contextlib.suppress(_ServerGone):
        while any(this.ended is None for this in to) and time.monotonic() < deadline:
            for this, report in _server.reports(team):
                this.take(report)


def _close(*files: IO[bytes] | None) -> None:
    for file in files:
        if file is not None:
            file.close()
