"""The guard: a tiny process that ends another one when the process that started the guard is gone, however it ended.

For a process that is not ours to change and would outlive us: the temporary server that Prefect starts. What we write
ourselves watches a pipe and needs no guard.
"""

import os
import select
import signal
import subprocess
import sys

GRACE_SECONDS = 3.0  # between SIGTERM and SIGKILL


def guard(pid: int) -> None:
    """Starts a guard: the process `pid`, a child of this one, ends at the latest some seconds after this one."""
    subprocess.Popen(
        [sys.executable, "-I", __file__, str(pid)],
        stdin=subprocess.PIPE,  # the kernel closes our end with us, and nobody writes to it
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _main() -> None:
    try:
        guarded = os.pidfd_open(int(sys.argv[1]))  # a pid may be another process's by the time we need it; this may not
    except ProcessLookupError:
        return
    select.select([sys.stdin, guarded], [], [])
    for number in (signal.SIGTERM, signal.SIGKILL):
        if select.select([guarded], [], [], 0)[0]:
            return
        signal.pidfd_send_signal(guarded, number)
        select.select([guarded], [], [], GRACE_SECONDS)


if __name__ == "__main__":
    _main()
