"""Runs: which run this is, its directory, and what a resume must not guess."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from tasks.config import Config, build_config
from tasks.distribution import Distribute
from tasks.errors import ConfigError, RunError
from tasks.files import Record, digest_json, lock, write_atomic
from tasks.train.result import RESULT, TrainResult

STATE = "state.json"
WORKER_TIMEOUT_SECONDS = 60  # a worker ends itself 4 s after its command; a slow disk may hold it longer
RESCHEDULED_TIMEOUT_SECONDS = 60  # an execution that was told to end has a grace of 10 s, and tracks how it ended
CHOOSE_LOCK = ".choose.lock"  # in runs/: held while a run is chosen or begun
LOCK, WORKER_LOCK = "lock", "worker.lock"  # in a run's directory: see `Run`
_updating = threading.Lock()  # the flow and its tracker's thread both change state.json


class RunState(Record):
    """state.json of a run."""

    id: str
    key: str
    data_digest: str
    totals: tuple[str, ...] = ()
    """What `train.total` was before, oldest first: a run that is given a longer one goes on from its end."""
    status: Literal["open", "running", "failed", "killed", "finished"]
    """`open`: some stages are done and none is running. `running` with a free lock: its process died."""
    created: str
    host: str
    pid: int
    mlflow_run_id: str = ""
    """Empty until the tracking server answered."""
    prefect_flow_run_ids: tuple[str, ...] = ()
    reproduces: str = ""
    """Id of the run that this one repeats to see whether the same comes of it; its model is never registered."""
    lost_devices: tuple[str, ...] = ()
    """Devices without which it went on, oldest first: which, at what step, and the numbers of replicas."""

    @property
    def name(self) -> str:
        """The config's name: an id is that, a time and the key."""
        return self.id.rsplit("-", 2)[0]


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
    def profile(self) -> Path:
        return self.directory / "profile"

    @property
    def report(self) -> Path:
        return self.directory / "report"

    @property
    def model(self) -> Path:
        """The exported model; one of a run that went on longer stands beside that of before, by its new length."""
        longer = f"-{self.config.train.total.replace(' ', '-')}" if self.state().totals else ""
        return self.workspace / "models" / self.config.name / f"{self.id}{longer}"

    @property
    def lock(self) -> Path:
        """Held by the process that carries the run out."""
        return self.directory / LOCK

    @property
    def worker_lock(self) -> Path:
        """Held by the run's worker for as long as it lives, which may be some seconds longer than its flow process."""
        return self.directory / WORKER_LOCK

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def state(self) -> RunState:
        """Returns what state.json holds now."""
        return RunState.read(self.directory / STATE)

    def on(self, distribute: Distribute) -> "Run":
        """Returns the run on other devices, and writes that into its config for the workers that are still to come."""
        run = Run(self.directory, self.config.model_copy(update={"distribute": distribute}))
        _write_config(run.directory, run.config)
        return run

    def finish(self) -> None:
        """Writes into state.json that the whole pipeline is done: the run is never trained again."""
        self.update(status="finished")

    def update(self, **changes: Any) -> RunState:
        """Changes fields of state.json and returns it; only the holder of the run's lock may call this."""
        with _updating:
            state = self.state().model_copy(update=changes)
            state.write(self.directory / STATE)
            return state


def workspace_of(environment: Mapping[str, str] = os.environ, *, deployed: bool = False) -> Path:
    """Returns the workspace: MILLSTREAM_WORKSPACE, else ./workspace; always absolute.

    A deployed run must be told: raises ConfigError if MILLSTREAM_WORKSPACE is not set or relative.
    """
    named = environment.get("MILLSTREAM_WORKSPACE", "")
    if deployed and not Path(named).is_absolute():
        raise ConfigError(
            f"MILLSTREAM_WORKSPACE={named}: must be an absolute path in a deployment, because a worker's folder is not "
            "the one you deployed from and may be temporary; set it where the worker is started and restart the worker"
        )
    return Path(named or "workspace").expanduser().resolve()


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
    existing: bool = False,
    reproduces: str = "",
) -> Iterator[Run]:
    """Yields the run to go on with, its lock held: the named one, else the run of this Prefect flow run, else the
    newest unfinished run of the same key, else a new one. With `existing` it is the named one or the newest of the same
    key, finished or not, and never a new one. The named one may be given a longer `train.total`, and then has the key
    of a run that was begun with it. With `reproduces` only reproductions of that run are gone on with, and without it
    none.

    When the block raises, state.json says killed (an interrupt) or failed; it says finished once `run.finish()` was
    called. Raises RunError if the run is open in another process, unknown, or was begun with another config.
    """
    if run_id is not None and fresh:
        raise ConfigError("--run names a run to go on with and --fresh begins a new one; give one of them")
    digests = {"data_digest": data_digest, "code_digest": code_digest}
    key = run_key(config, **digests)
    # One process at a time chooses, so that two cannot both begin a new run of one key.
    with ExitStack() as held:
        with lock(workspace / "runs" / CHOOSE_LOCK):
            same = [state for state in list_runs(workspace) if (state.key, state.reproduces) == (key, reproduces)]
            chosen: Path | None
            if run_id is not None:
                chosen = _named(workspace, run_id, config, key=key, digests=digests, existing=existing)
            else:
                chosen = _chosen(workspace, same, flow_run_id=flow_run_id, fresh=fresh, existing=existing)
            if chosen is None and existing:
                raise RunError(
                    f"no run of this config (key {key}) in {workspace}; train one first with `millstream train`"
                )
            if chosen is None:
                chosen = _create(workspace / "runs", config, key=key, data_digest=data_digest, reproduces=reproduces)
            run = Run(chosen, config)
            # One that Prefect has scheduled anew may begin before its execution of before has ended.
            again = bool(flow_run_id) and flow_run_id in run.state().prefect_flow_run_ids
            try:
                held.enter_context(lock(run.lock, timeout_seconds=RESCHEDULED_TIMEOUT_SECONDS if again else 0))
            except TimeoutError:
                state = run.state()
                raise RunError(
                    f"run {run.id} with this very config is being carried out on {state.host} by process {state.pid}; "
                    "wait for it, stop it, or begin another with --fresh"
                ) from None
        _outlive_worker(run)
        if run.state().key != key:
            _lengthen(run, find_run(workspace, run.id).config, key=key)
        before = run.state()
        flow_runs = dict.fromkeys((*before.prefect_flow_run_ids, *([flow_run_id] if flow_run_id else [])))
        # A finished run stays so, however a stage ends that is carried out on it again, a kill included.
        during = "finished" if before.status == "finished" else "running"
        run.update(status=during, host=socket.gethostname(), pid=os.getpid(), prefect_flow_run_ids=tuple(flow_runs))
        _write_config(run.directory, config)
        status = "open"
        try:
            yield run
        except Exception:
            status = "failed"
            raise
        except BaseException:  # KeyboardInterrupt, SystemExit, Prefect's TerminationSignal
            status = "killed"
            raise
        finally:
            if run.state().status == "running":
                run.update(status=status)


def list_runs(workspace: Path) -> list[RunState]:
    """Returns the state of every run in the workspace, newest first."""
    states = [RunState.read(path) for path in (workspace / "runs").glob(f"*/{STATE}")]
    return sorted(states, key=lambda state: (state.created, state.id), reverse=True)


def find_run(workspace: Path, run_id: str, overrides: Sequence[str] = ()) -> Run:
    """Returns the run of an id with the config it was begun with; raises RunError that lists the newest ids."""
    directory = workspace / "runs" / run_id
    if not (directory / STATE).is_file():
        known = ", ".join(state.id for state in list_runs(workspace)[:5]) or "none yet"
        raise RunError(f"no run {run_id!r} in {workspace}; the newest are: {known}")
    return Run(directory, build_config(yaml.safe_load((directory / "config.yaml").read_text()), overrides))


def is_free(directory: Path) -> bool:
    """Returns whether no process is carrying out the run in `directory`."""
    try:
        with lock(directory / LOCK, timeout_seconds=0):
            return True
    except TimeoutError:
        return False


def _outlive_worker(run: Run) -> None:
    """Returns once no worker of an earlier process is at work on the run: it may still write a checkpoint or report."""
    try:
        with lock(run.worker_lock, timeout_seconds=WORKER_TIMEOUT_SECONDS):
            pass
    except TimeoutError:
        raise RunError(
            f"run {run.id}: a worker whose command is gone is still at work on it after {WORKER_TIMEOUT_SECONDS} s; "
            f"end it (`fuser {run.worker_lock}` names the process) and give the same command again"
        ) from None


def _named(workspace: Path, run_id: str, config: Config, *, key: str, digests: dict[str, str], existing: bool) -> Path:
    run = find_run(workspace, run_id)
    state = run.state()
    if state.key != key:
        if existing or state.key != run_key(_with_total(config, run.config), **digests):
            raise ConfigError(
                f"run {run_id} was begun with another config, data or model code (key {state.key}, now {key}); "
                "give its own config, or begin a new run without --run"
            )
        _check_longer(run, config)
    elif state.status == "finished" and not existing:
        raise RunError(
            f"run {run_id} is finished and is never trained again; begin a new one with `millstream run`, or go on "
            f"from its end with `millstream resume {run_id} train.total=...`"
        )
    return run.directory


def _with_total(config: Config, other: Config) -> Config:
    """Returns a config with the `train.total` of another."""
    return config.model_copy(update={"train": config.train.model_copy(update={"total": other.train.total})})


def _check_longer(run: Run, config: Config) -> None:
    """Raises ConfigError unless a run can go on from where it is to the total of `config`."""
    before, now = run.config.train.total, config.train.total
    where = f"train.total={now}: run {run.id}"
    schedule = config.train.optimizer.schedule
    if schedule.depends_on_total:
        raise ConfigError(
            f"{where} cannot go on, because its {schedule.kind} schedule has moved the learning rate towards an end at "
            f"{before} from the first step; begin a new run of that length with `millstream run`"
        )
    result = run.directory / RESULT
    if result.is_file() and (why := TrainResult.read(result).stopped_early):
        raise ConfigError(
            f"{where} was stopped early ({why}), as it would be on the way to any longer total; begin a new run with "
            "another train.early_stopping"
        )
    (old, unit), (new, new_unit) = before.split(" "), now.split(" ")
    if new_unit != unit or int(new) <= int(old):
        raise ConfigError(f"{where} was begun with {before} and can only go on longer; give a larger number of {unit}")


def _lengthen(run: Run, before: Config, *, key: str) -> None:
    """Writes into state.json that the run goes on to a new total; its report gives way to that of the new end."""
    old = before.train.total
    if run.report.exists():
        run.report.rename(run.directory / f"{run.report.name}-{old.replace(' ', '-')}")
    # Before the config: killed in between, the same command finds the key it looks for.
    run.update(key=key, totals=(*run.state().totals, old), status="open")


def _chosen(workspace: Path, same: list[RunState], *, flow_run_id: str, fresh: bool, existing: bool) -> Path | None:
    """Returns the directory of the run to go on with among those of `same` key, newest first; None for a new one."""
    ours = [state for state in same if flow_run_id and flow_run_id in state.prefect_flow_run_ids]
    if fresh and not ours:
        return None
    going = [state for state in same if state.status != "finished" or existing]
    # One that is being carried out comes first: its lock is found held, and by whom is said.
    busy = [state for state in going if not is_free(workspace / "runs" / state.id)]
    found = [*ours, *busy, *going]
    return workspace / "runs" / found[0].id if found else None


def _create(runs: Path, config: Config, *, key: str, data_digest: str, reproduces: str) -> Path:
    while True:
        now = datetime.now(UTC)
        run_id = f"{config.name}-{now:%Y%m%dT%H%M%SZ}-{key}"
        try:
            (runs / run_id).mkdir(parents=True)
            break
        except FileExistsError:  # two runs of one key begun in one second
            time.sleep(0.2)
    _write_config(runs / run_id, config)  # before the state: what has a state is a run, and has a config
    RunState(
        id=run_id,
        key=key,
        data_digest=data_digest,
        reproduces=reproduces,
        status="open",
        created=now.isoformat(timespec="milliseconds"),
        host=socket.gethostname(),
        pid=os.getpid(),
    ).write(runs / run_id / STATE)
    return runs / run_id


def _write_config(directory: Path, config: Config) -> None:
    resolved = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    write_atomic(directory / "config.yaml", resolved.encode())
