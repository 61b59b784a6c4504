"""The commands about runs that are there: listed, compared, sent to MLflow."""

from pathlib import Path

from flows import display
from flows.options import Json
from tasks.runs import find_run, list_runs, workspace_of


def runs(json: Json = False) -> None:
    """The runs of the workspace, newest first.

    Example: millstream runs
    """
    display.runs(list_runs(workspace_of()), json=json)


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
