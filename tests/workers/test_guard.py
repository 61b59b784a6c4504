"""What we did not write ends with us too, even if we are killed."""

import subprocess
import sys

import psutil

SLEEPING = "import time; print(flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPING}"
GUARDING = """
import subprocess, sys, time
from tasks.workers.guard import guard
child = subprocess.Popen([sys.executable, "-c", {code!r}], stdout=subprocess.PIPE)
child.stdout.readline()
guard(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def guarded_by_the_killed(code):
    """Returns a process that runs `code`, guarded by its parent, which was just killed."""
    parent = subprocess.Popen([sys.executable, "-c", GUARDING.format(code=code)], stdout=subprocess.PIPE, text=True)
    with parent:
        guarded = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    return guarded


def test_a_guarded_process_ends_when_its_parent_is_killed():
    guarded = guarded_by_the_killed(SLEEPING)
    assert psutil.wait_procs([guarded], timeout=3)[1] == []


def test_a_guarded_process_that_ignores_sigterm_is_killed():
    guarded = guarded_by_the_killed(STUBBORN)
    assert psutil.wait_procs([guarded], timeout=8)[1] == []
