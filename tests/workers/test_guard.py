"""What we did not write ends with us too, even if we are killed."""

import subprocess
import sys

import psutil

GUARDING = """
import subprocess, sys, time
from tasks.workers.guard import guard
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", {code}])
guard(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""


def killed_guardian(code):
    """Returns the guarded process of a process that was just killed."""
    parent = subprocess.Popen([sys.executable, "-c", GUARDING.format(code=code)], stdout=subprocess.PIPE, text=True)
    with parent:
        guarded = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    return guarded


def test_a_guarded_process_ends_when_its_guardian_is_killed():
    guarded = killed_guardian("'import time; time.sleep(60)'")
    assert psutil.wait_procs([guarded], timeout=3)[1] == []


def test_a_guarded_process_that_ignores_sigterm_is_killed():
    guarded = killed_guardian("stubborn")
    assert psutil.wait_procs([guarded], timeout=8)[1] == []
