"""Tracked: how far MLflow has a run."""

from pydantic import Field

from tasks.errors import DataError
from tasks.files import Record
from tasks.runs import Run

TRACKED = "tracked.json"


class Tracked(Record):
    """tracked.json of a run: where its MLflow run is, and what of it was sent there."""

    mlflow_run_id: str = ""
    """Empty until the server answered."""
    experiment_id: str = ""
    uri: str = ""
    """Tracking server or database, without user and password."""
    offset: int = 0
    """Bytes of events.jsonl that were sent."""
    last_steps: dict[str, int] = Field(default_factory=dict)
    """Last step sent of each metric: a resumed training goes through steps again."""
    sent: dict[str, str] = Field(default_factory=dict)
    """Stamp of each `Item` that was sent, by its name."""


def read_tracked(run: Run) -> Tracked:
    """Returns what was tracked of a run; nothing if that record is missing or damaged.

    Sending all again does no harm then: MLflow keeps a point of the same name, step, time and value once.
    """
    try:
        return Tracked.read(run.directory / TRACKED)
    except DataError:
        return Tracked()


def write_tracked(run: Run, tracked: Tracked) -> None:
    """Remembers what was tracked of a run."""
    tracked.write(run.directory / TRACKED)
