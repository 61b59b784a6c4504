"""Events: the run's own record of every metric point, written first, sent to MLflow by another process."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path


def append(path: Path, metrics: Mapping[str, float], *, step: int) -> None:
    """Adds one point of each metric; a whole line reaches the file at once, so that a reader never sees half."""
    line = json.dumps({"time_ms": time.time_ns() // 1_000_000, "step": step, "metrics": dict(metrics)})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def history(path: Path) -> dict[str, dict[int, float]]:
    """Returns {metric: {step: value}}; a step that a resumed run went through again counts once, as last seen."""
    found: dict[str, dict[int, float]] = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        event = json.loads(line)
        for metric, value in event["metrics"].items():
            found.setdefault(metric, {})[event["step"]] = value
    return found
