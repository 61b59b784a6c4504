"""Backlog: runs that are not finished and locks that are held, with how to go on."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tasks.errors import DataError
from tasks.host.finding import Finding
from tasks.host.inventory import is_held, run_locks
from tasks.runs import RunState, list_runs

_SHOWN = 5


def backlog_findings(workspace: Path, locks: Path) -> Iterator[Finding]:
    """Yields the unfinished runs of a workspace, newest first, and who holds this host's devices; changes nothing.

    `locks` is the folder of `tasks.workers.locks`.
    """
    try:
        unfinished = [state for state in list_runs(workspace) if state.status != "finished"]
    except DataError as error:
        fix = "put state.json back from a copy, or delete the run's directory"
        yield Finding(name="runs", status="problem", found=str(error), fix=fix)
        return
    for state in unfinished[:_SHOWN]:
        yield _run(workspace, state)
    if len(unfinished) > _SHOWN:
        more = f"{len(unfinished) - _SHOWN} more are not finished"
        yield Finding(name="runs", status="warning", found=more, fix="`millstream runs` lists them")
    if not unfinished:
        yield Finding(name="runs", status="ok", found="none is unfinished")
    for path in sorted(locks.glob("*.lock")):
        if is_held(path):
            yield _device(path)


def _run(workspace: Path, state: RunState) -> Finding:
    directory = workspace / "runs" / state.id
    name, holder = f"run {state.id}", f"process {state.pid} of {state.host}"
    if any(map(is_held, run_locks(directory))):
        if state.host == socket.gethostname() and not _is_alive(state.pid):
            return Finding(
                name=name,
                status="warning",
                found=f"{holder} is gone, but something of it still holds the lock",
                fix=f"wait a minute for its children to end; then see who it is with `fuser {directory}/*lock`",
            )
        return Finding(name=name, status="ok", found=f"is being carried out by {holder}")
    said = {"running": f"its process ({holder}) died; MLflow calls it RUNNING until it is gone on with"}
    return Finding(
        name=name,
        status="warning",
        found=said.get(state.status, f"{state.status}, not finished"),
        fix=f"`millstream resume {state.id}` goes on where it stopped; to give it up, delete {directory}",
    )


def _device(path: Path) -> Finding:
    try:
        holder = json.loads(path.with_suffix(".json").read_bytes())
        by, alive = f"run {holder['run']} (process {holder['pid']})", _is_alive(holder["pid"])
    except (OSError, ValueError):
        by, alive = "a run that has not said its name", True
    return Finding(
        name=f"device {path.stem}",
        status="ok" if alive else "warning",
        found=f"held by {by}" + ("" if alive else ", which is not a process of this host any more"),
        fix="" if alive else f"see who holds it with `fuser {path}`",
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
