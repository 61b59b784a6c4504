"""The server: imports TensorFlow once, then forks a child for each request in about 0.1 s.

`tasks.workers.launch` starts it as `python -m tasks.workers.server`. JSON lines come in on stdin and go out on stdout.
In: a call (`call`, `function`, `arguments`, `environment`, `working_directory`, `import_path`, `log`, `lock`, and
`network_of`: the call whose network it shares, if any), or a signal to the child of a call (`signal`: the call,
`number`). Out: `call` and `pid` of a child that begins, `exit` and `signal` of one that has ended; between them the
child's own `phase` (progress) and `part` (its result or error, cut in pieces).
At the end of stdin the flow process is gone: the children get SIGTERM, then SIGKILL, and the server ends.
"""

import gc
import importlib
import json
import os
import select
import signal
import threading
import time
from typing import Any

from tasks.workers import child

_PRELOADED = ("tensorflow", "keras", "tasks.config")  # no op is run and no device touched before the fork


def main() -> None:
    """Serves until stdin ends."""
    requests, reports = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # whatever a library prints must not look like a report
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload(requests)
    _Server(requests, reports).serve()


def _preload(requests: int) -> None:
    """Imports what every child needs; ends the process if the flow process goes away meanwhile."""
    done = threading.Event()

    def watch() -> None:
        poll = select.poll()
        poll.register(requests, 0)  # tells of a hang-up alone; requests wait in the pipe
        while not done.wait(0.2):
            if poll.poll(0):
                os._exit(0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for module in _PRELOADED:
            importlib.import_module(module)
    finally:
        done.set()
        watcher.join()  # a fork copies the calling thread only, so there must be no other of ours
    gc.freeze()  # the children share these pages for as long as no collector writes to them


class _Server:
    """The children of one flow process."""

    def __init__(self, requests: int, reports: int) -> None:
        self._requests = requests
        self._reports = reports
        self._children: dict[int, int] = {}  # call -> pid
        # Only the server holds the write end: its end, however it comes, is the end of file for every child.
        self._alive, self._alive_write = os.pipe()
        self._wakes, self._wakes_write = os.pipe()
        os.set_blocking(self._wakes_write, False)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes_write, warn_on_full_buffer=False)
        unread = b""
        while True:
            ready, _, _ = select.select([self._requests, self._wakes], [], [])
            if self._wakes in ready:
                os.read(self._wakes, 4096)
                self._reap()
            if self._requests in ready:
                data = os.read(self._requests, 65536)
                if not data:
                    break
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    self._carry_out(json.loads(line))
        self._end()

    def _carry_out(self, request: dict[str, Any]) -> None:
        if "signal" in request:
            self._kill(request["signal"], request["number"])
            return
        chief = self._children.get(request["network_of"])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._requests, self._alive_write, self._wakes, self._wakes_write):
                os.close(descriptor)
            child.run(request, reports=self._reports, alive=self._alive, chief=chief)
        self._children[request["call"]] = pid
        child.write_report(self._reports, {"call": request["call"], "pid": pid})

    def _kill(self, call: int, number: int) -> None:
        # A pid stays a child's own until it is reaped, and then it is no longer listed.
        if call in self._children:
            os.kill(self._children[call], number)

    def _reap(self) -> None:
        for call, pid in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[call]
                code = os.waitstatus_to_exitcode(status)
                name = signal.Signals(-code).name if code < 0 else None
                child.write_report(self._reports, {"call": call, "exit": code, "signal": name})

    def _end(self) -> None:
        for call in self._children:
            self._kill(call, signal.SIGTERM)
        deadline = time.monotonic() + child.ORPHAN_GRACE_SECONDS
        while self._children and time.monotonic() < deadline:
            time.sleep(0.05)
            self._reap()
        for call in self._children:
            self._kill(call, signal.SIGKILL)


if __name__ == "__main__":
    main()
