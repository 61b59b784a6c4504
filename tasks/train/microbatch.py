"""The microbatch: how many of its rows a replica takes at once, as the run remembers it, and how auto finds it."""

import logging
from collections.abc import Callable
from typing import Any

from tasks.errors import ConfigError, WorkerLost
from tasks.files import Record
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.workers.restarts import call_once

MICROBATCH = "microbatch.json"
logger = logging.getLogger("millstream")


class Microbatch(Record):
    """What a run has come to, whatever its config says."""

    rows: int | None
    """Examples that a replica takes at once; None: all of its part of a global batch."""


def microbatch_of(run: Run) -> int | None:
    """Returns how many rows each replica of the run takes at once; None: all, or not known yet."""
    path, wanted = run.directory / MICROBATCH, run.config.train.microbatch
    found = Microbatch.read(path).rows if path.is_file() else None
    numbers = [number for number in (found, wanted) if isinstance(number, int)]
    return min(numbers, default=None)


def settle_microbatch(run: Run, shards: Shards) -> None:
    """Finds, once in a run, what `train.microbatch=auto` means: a few steps are tried in a worker of their own.

    Raises ConfigError if not even one example at a time fits into memory.
    """
    if run.config.train.microbatch != "auto" or (run.directory / MICROBATCH).exists():
        return

    def attempt(rows: int | None) -> dict[str, Any]:
        arguments = {"shards": shards.model_dump(mode="json"), "rows": rows}
        return call_once(run, "train", "tasks.train.trial:try_steps", arguments, together=True)

    rows = find_largest(attempt)
    Microbatch(rows=rows).write(run.directory / MICROBATCH)
    logger.info("train: train.microbatch: auto is %s", "all of a replica's rows" if rows is None else rows)


def find_largest(attempt: Callable[[int | None], dict[str, Any]]) -> int | None:
    """Returns how many rows fit at once: all (None), or the most of a half, a quarter, ... of them.

    `attempt(rows)` tries so many and returns {"fits", "slice_rows": how many there are}; it may be lost in trying, as
    a process is that the system kills for its memory. Raises ConfigError if not even one fits, WorkerLost if the
    attempt with one is lost too.
    """
    fits, slice_rows = _try(attempt, None)
    if fits:
        return None
    if slice_rows is None:  # lost before it said so; what is lost with one row is not lost for want of memory
        slice_rows = int(attempt(1)["slice_rows"])
    sizes, rows = [], slice_rows
    while rows > 1:
        rows = -(-rows // 2)
        sizes.append(rows)
    low, high = 0, len(sizes)  # the first that fits is in sizes[low:high], or none does
    while low < high:
        middle = (low + high) // 2
        if _try(attempt, sizes[middle])[0]:
            high = middle
        else:
            low = middle + 1
    if low == len(sizes):
        raise ConfigError(
            "train.microbatch=auto: not even one example at a time fits into the memory of a device; take a smaller "
            "model, train.recompute=true, train.precision=mixed_bfloat16, or another device"
        )
    return sizes[low]


def _try(attempt: Callable[[int | None], dict[str, Any]], rows: int | None) -> tuple[bool, int | None]:
    try:
        found = attempt(rows)
    except WorkerLost as error:
        logger.info("train: train.microbatch: %s rows at once: %s", "all" if rows is None else rows, error)
        return False, None
    return found["fits"], found["slice_rows"]
