"""Points: the metric points of a run that MLflow does not have yet."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from tasks import events
from tasks.errors import DataError
from tasks.files import Record
from tasks.runs import Run

if TYPE_CHECKING:
    from mlflow.entities import Metric

TRACKED = "tracked.json"


class Tracked(Record):
    """tracked.json of a run: how far MLflow has its events."""

    mlflow_run_id: str
    offset: int = 0
    """Bytes of events.jsonl that were sent."""
    last_steps: dict[str, int] = Field(default_factory=dict)
    """Last step sent of each metric: a resumed training goes through steps again."""


class Points:
    """A reader of a run's events that knows what was sent, also by an earlier process.

    A process that dies between sending and `commit` sends the same points again. MLflow keeps a point of the same name,
    step, time and value once, so they do not become two.
    """

    def __init__(self, run: Run, mlflow_run_id: str) -> None:
        self._events, self._file = run.events, run.directory / TRACKED
        self._sent = _sent_so_far(self._file, mlflow_run_id)
        self._taken = self._sent  # read, and sent once the caller says so

    def read(self) -> list["Metric"]:
        """Returns the points that are new since the last `commit`, oldest first."""
        from mlflow.entities import Metric

        lines = _whole_lines(self._events, self._sent.offset)
        last_steps, points = dict(self._sent.last_steps), []
        for event in events.parse(lines):
            step = event["step"]
            for name, value in event["metrics"].items():
                if step > last_steps.get(name, -1):
                    last_steps[name] = step
                    points.append(Metric(name, value, event["time_ms"], step))
        self._taken = self._sent.model_copy(
            update={"offset": self._sent.offset + len(lines), "last_steps": last_steps},
        )
        return points

    def commit(self) -> None:
        """Remembers that what was last read has been sent."""
        if self._taken != self._sent:
            self._taken.write(self._file)
            self._sent = self._taken


def _sent_so_far(file: Path, mlflow_run_id: str) -> Tracked:
    new = Tracked(mlflow_run_id=mlflow_run_id)
    if not file.is_file():
        return new
    try:
        tracked = Tracked.read(file)
    except DataError:  # sending all again does no harm, see Points
        return new
    return tracked if tracked.mlflow_run_id == mlflow_run_id else new


def _whole_lines(events: Path, offset: int) -> bytes:
    """Returns what follows `offset`, up to the last end of a line."""
    if not events.is_file():
        return b""
    with open(events, "rb") as file:
        file.seek(offset)
        data = file.read()
    return data[: data.rfind(b"\n") + 1]
