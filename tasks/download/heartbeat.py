"""Heartbeat: tells the flow process that a worker is alive while it runs code that cannot report itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.workers.child import progress

_SECONDS = 10.0


@contextmanager
def heartbeat() -> Iterator[None]:
    """Reports every few seconds as long as the block runs, so that a long download does not count as a hang.

    What hangs in it for ever is ended by the timeouts of what it does, or of the task.
    """
    done = threading.Event()

    def beat() -> None:
        while not done.wait(_SECONDS):
            progress("alive")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
