"""Runs: which run this is, its directory, and what a resume must not guess."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from tasks.config import Config, build_config
from tasks.errors import ConfigError, RunError
from tasks.files import Record, digest_json, lock, write_atomic

STATE = "state.json"


class RunState(Record):
    """state.json of a run."""

    id: str
    key: str
    data_digest: str
    status: Literal["running", "failed", "killed", "finished"]
    """`running` with a free lock means that its process died."""
    created: str
    host: str
    pid: int
    mlflow_run_id: str = ""
    """Empty until the tracking server answered."""
    prefect_flow_run_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One pipeline run: a directory runs/<id>/ in the workspace and the config it was begun with."""

    directory: Path
    config: Config

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def workspace(self) -> Path:
        return self.directory.parent.parent

    @property
    def checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def events(self) -> Path:
        """Every metric point of the run, one JSON object a line; the tracker sends them on."""
        return self.directory / "events.jsonl"

    @property
    def report(self) -> Path:
        return self.directory / "report"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def state(self) -> RunState:
        """Returns what state.json holds now."""
        return RunState.read(self.directory / STATE)

    def update(self, **changes: Any) -> RunState:
        """Changes fields of state.json and returns it; only the holder of the run's lock may call this."""
        state = self.state().model_copy(update=changes)
        state.write(self.directory / STATE)
        return state


def workspace_of(environment: dict[str, str] | None = None) -> Path:
    """Returns the workspace: MILLSTREAM_WORKSPACE, else ./workspace; always absolute."""
    environment = dict(os.environ) if environment is None else environment
    return Path(environment.get("MILLSTREAM_WORKSPACE") or "workspace").expanduser().resolve()


def run_key(config: Config, *, data_digest: str, code_digest: str) -> str:
    """Returns 12 hex digits: equal for two runs that compute the same result, devices and cadences aside."""
    return digest_json({"config": config.identity(), "data": data_digest, "code": code_digest})[:12]


@contextmanager
def open_run(
    workspace: Path,
    config: Config,
    *,
    data_digest: str,
    code_digest: str,
    run_id: str | None = None,
    flow_run_id: str = "",
    fresh: bool = False,
) -> Iterator[Run]:
    """Yields the run to go on with, its lock held: the named one, else the run of this Prefect flow run, else the
    newest unfinished run of the same key, else a new one.

    The block's end writes the truth into state.json: finished, killed (an interrupt) or failed. Raises RunError if the
    run is open in another process, unknown, or was begun with another config.
    """
    key = run_key(config, data_digest=data_digest, code_digest=code_digest)
    # One process at a time chooses, so that two cannot both begin a new run of one key.
    with lock(workspace / "runs" / ".choose.lock"):
        directory = _choose(
            workspace, config, key=key, data_digest=data_digest, run_id=run_id, flow_run_id=flow_run_id, fresh=fresh
        )
        held = lock(directory / "lock", timeout_seconds=0)
        try:
            held.__enter__()
        except TimeoutError:
            state = RunState.read(directory / STATE)
            raise RunError(
                f"run {state.id} with this very config is being carried out on {state.host} by process {state.pid}; "
                "wait for it, stop it, or begin another with --fresh"
            ) from None
    try:
        run = Run(directory, config)
        state = run.state()
        flow_runs = (*state.prefect_flow_run_ids, flow_run_id) if flow_run_id else state.prefect_flow_run_ids
        run.update(
            status="running",
            host=socket.gethostname(),
            pid=os.getpid(),
            prefect_flow_run_ids=tuple(dict.fromkeys(flow_runs)),
        )
        write_atomic(
            directory / "config.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).encode()
        )
        try:
            yield run
        except Exception:
            run.update(status="failed")
            raise
        except BaseException:  # KeyboardInterrupt, SystemExit, Prefect's TerminationSignal
            run.update(status="killed")
            raise
        run.update(status="finished")
    finally:
        held.__exit__(None, None, None)


def list_runs(workspace: Path) -> list[RunState]:
    """Returns the state of every run in the workspace, newest first."""
    states = [RunState.read(path) for path in (workspace / "runs").glob(f"*/{STATE}")]
    return sorted(states, key=lambda state: (state.created, state.id), reverse=True)


def find_run(workspace: Path, run_id: str) -> Run:
    """Returns the run of an id with the config it was begun with; raises RunError that lists the known ids."""
    directory = workspace / "runs" / run_id
    if not (directory / STATE).is_file():
        known = ", ".join(state.id for state in list_runs(workspace)[:5]) or "none yet"
        raise RunError(f"no run {run_id!r} in {workspace}; the newest are: {known}")
    return Run(directory, build_config(yaml.safe_load((directory / "config.yaml").read_text())))


def is_free(directory: Path) -> bool:
    """Returns whether no process is carrying out the run in `directory`."""
    try:
        with lock(directory / "lock", timeout_seconds=0):
            return True
    except TimeoutError:
        return False


def _choose(
    workspace: Path, config: Config, *, key: str, data_digest: str, run_id: str | None, flow_run_id: str, fresh: bool
) -> Path:
    """Returns the directory of the run to go on with; makes one if there is none."""
    runs = workspace / "runs"
    if run_id is not None:
        state = find_run(workspace, run_id).state()
        if state.key != key:
            raise ConfigError(
                f"run {run_id} was begun with another config, data or model code (key {state.key}, now {key}); "
                "give its own config, or begin a new run without --run"
            )
        if state.status == "finished":
            raise RunError(f"run {run_id} is finished and is never trained again; begin a new one without --run")
        return runs / run_id
    same = [state for state in list_runs(workspace) if state.key == key]
    ours = [state for state in same if flow_run_id and flow_run_id in state.prefect_flow_run_ids]
    unfinished = [state for state in same if state.status != "finished"]
    if ours:
        return runs / ours[0].id
    if not fresh:
        busy = [state for state in unfinished if not is_free(runs / state.id)]
        if busy:
            return runs / busy[0].id  # the caller finds its lock held and says by whom
        if unfinished:
            return runs / unfinished[0].id
    return _create(runs, config.name, key=key, data_digest=data_digest)


def _create(runs: Path, name: str, *, key: str, data_digest: str) -> Path:
    while True:
        now = datetime.now(UTC)
        run_id = f"{name}-{now:%Y%m%dT%H%M%SZ}-{key}"
        try:
            (runs / run_id).mkdir(parents=True)
            break
        except FileExistsError:  # two runs of one key begun in one second
            time.sleep(0.2)
    RunState(
        id=run_id,
        key=key,
        data_digest=data_digest,
        status="running",
        created=now.isoformat(timespec="milliseconds"),
        host=socket.gethostname(),
        pid=os.getpid(),
    ).write(runs / run_id / STATE)
    return runs / run_id
