"""Progress: how far a long transfer or other work is, as a bar on a terminal and as lines elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

LINE_SECONDS = 5.0  # between two lines where there is no terminal

logger = logging.getLogger("millstream")


class Advance(Protocol):
    """Tells the progress how far it is."""

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None: ...


@contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Yields a function that takes the bytes that are done and those that there are in all (None: unknown).

    On a terminal it moves a bar with rate and time left; elsewhere, a worker of Prefect for example, it logs a line
    every few seconds, so that what is quick says nothing.
    """
    if sys.stderr.isatty():
        with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done_bytes, total_bytes: bar.update(task, completed=done_bytes, total=total_bytes)
    else:
        yield _transfer_lines(what)


@contextmanager
def step_progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes in words how far work of unknown size is, shown where `progress` shows bytes."""
    if sys.stderr.isatty():
        with _bar(SpinnerColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task(f"{what} begins", total=None)
            yield lambda step: bar.update(task, description=f"{what}: {step}")
    else:
        is_due = _pace()

        def log(step: str) -> None:
            if is_due():
                logger.info("%s: %s", what, step)

        yield log


def _bar(*columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False), *columns, console=Console(stderr=True), transient=True
    )


def _transfer_lines(what: str) -> Advance:
    start: tuple[float, int] | None = None
    is_due = _pace()

    def advance(done_bytes: int, total_bytes: int | None) -> None:
        nonlocal start
        now = time.monotonic()
        start = start or (now, done_bytes)
        if not is_due():
            return
        rate = (done_bytes - start[1]) / max(now - start[0], 1e-3)
        line = f"{what}: {done_bytes / 1e6:.1f}"
        if total_bytes is not None:
            line += f" of {total_bytes / 1e6:.1f}"
        line += f" MB, {rate / 1e6:.1f} MB/s"
        if total_bytes is not None and rate > 0:
            line += f", {(total_bytes - done_bytes) / rate:.0f} s left"
        logger.info(line)

    return advance


def _pace() -> Callable[[], bool]:
    """Returns a function that says whether it is time for another line."""
    said = time.monotonic()

    def is_due() -> bool:
        nonlocal said
        now = time.monotonic()
        if now - said < LINE_SECONDS:
            return False
        said = now
        return True

    return is_due
