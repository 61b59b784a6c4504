"""Events: the run's own record of every metric point, written first, sent on to MLflow by the tracker."""

import errno
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.files import digest_bytes

MAX_LETTERS = 80  # of a column or value in the name of a metric, of which MLflow takes 250

logger = logging.getLogger("millstream")


def append(path: Path, metrics: Mapping[str, float], *, step: int) -> None:
    """Adds one point of each metric; a whole line reaches the file at once, so that a reader never sees half."""
    event = json.dumps({"time_ms": time.time_ns() // 1_000_000, "step": step, "metrics": dict(metrics)})
    line = f"{event}\n".encode()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes and os.pread(descriptor, 1, size_bytes - 1) != b"\n":
            line = b"\n" + line  # the one before was cut off, by a full disk or a crash
        if os.write(descriptor, line) < len(line):
            raise OSError(errno.ENOSPC, "no room for a whole line", str(path))
    finally:
        os.close(descriptor)


def parse(lines: bytes) -> Iterator[dict[str, Any]]:
    """Yields `time_ms`, `step` and `metrics` of each event, oldest first; a line that was cut off is passed over."""
    for line in lines.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            logger.warning("events: a line that was cut off is passed over: %r", line[:80])


def history(path: Path) -> dict[str, dict[int, float]]:
    """Returns {metric: {step: value}}; a step that a resumed run went through again counts once, as last seen."""
    found: dict[str, dict[int, float]] = {}
    for event in parse(path.read_bytes() if path.is_file() else b""):
        for metric, value in event["metrics"].items():
            found.setdefault(metric, {})[event["step"]] = value
    return found


def metric_part(name: str) -> str:
    """Returns a part of a metric's name: short, and in the letters that MLflow takes, but another for another name."""
    written = re.sub(r"[^\w\-. ]", "_", name)[:MAX_LETTERS].strip(". ")
    return written if written and written == name else f"{written}-{digest_bytes(name.encode())[:6]}"
