"""Sync: what MLflow lacks of runs that are over, sent afterwards."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasks.errors import RunError
from tasks.files import Record, lock
from tasks.runs import Run, find_run, list_runs
from tasks.track import client
from tasks.track.provenance import find_provenance
from tasks.track.sender import Sender, Status, last_sign_ms, told_status

logger = logging.getLogger("millstream")


class Synced(Record):
    """What became of a run of which MLflow lacked something."""

    run_id: str
    sent: dict[str, int]
    """How much of what was sent, by name: points under 'metrics', one of all else."""
    url: str
    """Link of the run in the MLflow UI; empty if it was not reached."""
    problem: str
    """Why not all was sent; empty if it was."""


def tracked_runs(workspace: Path) -> list[Run]:
    """Returns the runs of a workspace that were ever tracked, oldest first."""
    runs = [find_run(workspace, state.id) for state in reversed(list_runs(workspace))]
    return [run for run in runs if find_provenance(run) is not None or run.state().mlflow_run_id]


def sync(runs: Sequence[Run], *, named: bool = False) -> Iterator[Synced]:
    """Yields each run of which something was unsent, once it is sent or could not be; nothing is sent twice.

    A run that is being carried out is left to its own tracker, or with `named` refused: RunError. MLflow shows a run as
    it ended: one whose process died is KILLED. Servers that do not answer are asked once.
    """
    silent: dict[str, str] = {}
    for run in runs:
        try:
            with lock(run.lock, timeout_seconds=0):
                synced = _sync(run, silent)
        except TimeoutError:
            state = run.state()
            if named:
                raise RunError(
                    f"run {run.id} is being carried out on {state.host} by process {state.pid}, which sends what there "
                    "is; give the command again when it has ended"
                ) from None
            logger.info("sync: run %s is being carried out and sends what there is itself", run.id)
            continue
        if synced is not None:
            yield synced


def ended_status(run: Run) -> Status:
    """Returns how a run ended that nobody is carrying out: as its state says, or as its tracker last told MLflow."""
    told = told_status(run)
    match run.state().status:
        case "finished":
            return "FINISHED"
        case "failed":
            return "FAILED"
        case "killed" | "running":
            return "KILLED"
        case "open":  # its stages are carried out one by one, perhaps after a whole run that broke off
            return "KILLED" if told == "RUNNING" else told or "FINISHED"


def _sync(run: Run, silent: dict[str, str]) -> Synced | None:
    """Returns what was sent of a run; None if MLflow lacks nothing of it. Adds to `silent` who does not answer."""
    sender, status, ended_ms = Sender(run), ended_status(run), last_sign_ms(run)
    if not sender.unsent(status):
        return None
    sent: dict[str, int] = {}
    problem = silent.get(sender.uri, "")
    if not problem:
        try:
            for name, number in sender.send(status, ended_ms=ended_ms):
                sent[name] = number
        except Exception as error:
            if not client.is_outage(error):
                raise
            problem = f"{sender.address} does not take it: {client.first_line(error)}"
            silent[sender.uri] = problem
    url = client.run_url(sender.uri, sender.experiment_id, sender.mlflow_run_id) if sender.is_connected else ""
    return Synced(run_id=run.id, sent=sent, url=url, problem=problem)
