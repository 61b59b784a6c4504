"""Points: the metric points of a run that MLflow does not have yet."""

from pathlib import Path
from typing import TYPE_CHECKING

from tasks import events
from tasks.track.tracked import Tracked

if TYPE_CHECKING:
    from mlflow.entities import Metric


def read_points(file: Path, tracked: Tracked) -> tuple[list["Metric"], Tracked]:
    """Returns the points of events.jsonl that were not sent, oldest first, and what is tracked once they are.

    A process that dies between sending them and writing that down sends the same points again. MLflow keeps a point of
    the same name, step, time and value once, so they do not become two.
    """
    from mlflow.entities import Metric

    lines = _whole_lines(file, tracked.offset)
    last_steps, points = dict(tracked.last_steps), []
    for event in events.parse(lines):
        step = event["step"]
        for name, value in event["metrics"].items():
            if step > last_steps.get(name, -1):
                last_steps[name] = step
                points.append(Metric(name, value, event["time_ms"], step))
    return points, tracked.model_copy(update={"offset": tracked.offset + len(lines), "last_steps": last_steps})


def has_new_points(file: Path, tracked: Tracked) -> bool:
    """Returns whether events.jsonl has lines that were not sent."""
    return bool(_whole_lines(file, tracked.offset))


def _whole_lines(file: Path, offset: int) -> bytes:
    """Returns what follows `offset`, up to the last end of a line."""
    if not file.is_file():
        return b""
    with open(file, "rb") as events_file:
        events_file.seek(offset)
        data = events_file.read()
    return data[: data.rfind(b"\n") + 1]
