"""The commands about runs that are there: listed, compared, sent to MLflow."""

import sys
from pathlib import Path
from typing import Literal

from cyclopts.types import NonNegativeInt

from flows import display
from flows.options import Json
from tasks.runs import find_run, workspace_of

Status = Literal["open", "running", "failed", "killed", "finished"]


def runs(
    *,
    name: str | None = None,
    status: Status | None = None,
    limit: NonNegativeInt | None = None,
    json: Json = False,
) -> None:
    """The runs of the workspace, newest first.

    Example: millstream runs --name digits --status finished --limit 10

    Parameters
    ----------
    name
        Only runs of configs of this name.
    status
        Only runs of this status; killed: also those whose process died.
    limit
        Only so many, the newest.
    """
    from tasks.track.listing import list_summaries

    display.runs(list_summaries(workspace_of(), name=name, status=status, limit=limit), json=json)


def compare(
    first: str, second: str, /, *others: str, until: str | None = None, png: Path | None = None, json: Json = False
) -> None:
    """In what runs differ: params, data, code, environment, figures; from their directories, without a server.

    Example: millstream compare RUN RUN --until val_accuracy=0.95 --png curves.png

    Parameters
    ----------
    first
        Id of a run, as `millstream runs` lists it.
    second
        Id of another.
    others
        Ids of more.
    until
        A metric and a value: after how many epochs and seconds each run reached it.
    png
        File to which the curves of all runs are written, as one picture.
    """
    from tasks.track.comparison import Until, compare_runs
    from tasks.track.curves import write_curves

    workspace = workspace_of()
    found = [find_run(workspace, run_id) for run_id in (first, second, *others)]
    compared = compare_runs(found, Until.parse(until) if until is not None else None)
    if png is not None:
        labels = display.labels(len(found))
        write_curves({f"{label}  {run.id}": run for label, run in zip(labels, found, strict=True)}, png)
    display.comparison(compared, json=json)


def sync(run_id: str | None = None, /, *, json: Json = False) -> None:
    """Sends to MLflow what it lacks of runs that are over, because it did not answer or their process was killed.

    Example: millstream sync

    Parameters
    ----------
    run_id
        Id of a run, as `millstream runs` lists it; default: every run of the workspace that was tracked.
    """
    from tasks.track import sync as room

    workspace = workspace_of()
    named = run_id is not None
    runs = [find_run(workspace, run_id)] if run_id is not None else room.tracked_runs(workspace)
    found = list(room.sync(runs, named=named))
    display.synced(found, json=json)
    if any(each.problem for each in found):
        sys.exit(1)


COMMANDS = (runs, compare, sync)
