"""Models whose build function also plants a fault in the worker that trains them; none changes a weight."""

import ctypes
import os
import signal
import time
from pathlib import Path

import models_for_tests

from tasks.train import loop

FAULTS = {
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(9),
    "hang": lambda: time.sleep(10**6),
    "raise": lambda: 1 / 0,
}


def faulty(inputs, num_classes, fault, steps, fired):
    """The dense model; the workers suffer `fault` once for each of `steps`, in their order, when that step is done.

    Each time a line is added to the file `fired`.
    """
    report = loop.progress

    def progress(phase, **fields):
        report(phase, **fields)
        if phase == "step" and count(fired) < len(steps) and fields["step"] >= steps[count(fired)]:
            with open(fired, "a") as file:
                file.write(f"{fault} at step {fields['step']}\n")
            FAULTS[fault]()

    loop.progress = progress
    return models_for_tests.dense(inputs, num_classes)


def count(fired):
    return len(Path(fired).read_text().splitlines()) if Path(fired).exists() else 0
