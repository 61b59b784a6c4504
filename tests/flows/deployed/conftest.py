"""Fixtures for proofs on real servers: Prefect, MLflow and a worker, all on loopback, on free ports."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import mlflow
import psutil
import pytest

from tasks import events
from tasks.runs import Run, find_run, list_runs

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
POOL = "gpu-pool"


def wait_for(condition, seconds=120):
    """Returns what `condition()` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"did not come true within {seconds} s")


@dataclass
class Stack:
    """A Prefect server, an MLflow server and a worker that runs the deployments of this repository."""

    folder: Path
    prefect_port: int
    mlflow_port: int
    processes: list[subprocess.Popen] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def prefect_url(self) -> str:
        return f"http://127.0.0.1:{self.prefect_port}"

    @property
    def mlflow_url(self) -> str:
        return f"http://127.0.0.1:{self.mlflow_port}"

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
        return inherited | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "DO_NOT_TRACK": "1",
            "PREFECT_HOME": str(self.folder / "prefect"),
            "PREFECT_API_URL": f"{self.prefect_url}/api",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_API_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
            "MLFLOW_TRACKING_URI": self.mlflow_url,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MILLSTREAM_WORKSPACE": str(self.workspace),
            "MILLSTREAM_LOCKS": str(self.folder / "locks"),
        }

    def serve(self, name: str, *command: str, health: str | None = None) -> None:
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                command, env=self.environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)

        def answers():
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()
            try:
                return health is None or httpx.get(health).status_code == 200
            except httpx.TransportError:
                return False

        wait_for(answers)

    @contextmanager
    def up(self):
        """Yields the process of `millstream up` and its log file, once all is up; stops it at the end of the block."""
        log = self.folder / "up.log"
        ports = ("--prefect-port", str(self.prefect_port), "--mlflow-port", str(self.mlflow_port))
        try:
            self.serve("up", "millstream", "up", *ports)
            while "Ctrl-C stops both and the worker" not in log.read_text():
                assert self.processes[0].poll() is None, log.read_text()
                time.sleep(0.2)
            yield self.processes[0], log
        finally:
            self.stop()

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is not None:
                continue
            descendants = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
            for descendant in psutil.wait_procs(descendants, timeout=5)[1]:
                descendant.kill()

    def prefect(self, *arguments: str, code: int = 0) -> str:
        """Returns what `prefect` printed; its exit code must be `code`."""
        return self.call("prefect", "--no-prompt", *arguments, code=code)

    def call(self, *command: str, code: int = 0, folder: Path = ROOT) -> str:
        """Returns what a command printed that was given in `folder`; its exit code must be `code`."""
        done = subprocess.run(
            command,
            check=False,
            env=self.environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def api(self, method: str, path: str, **body: Any) -> Any:
        for _ in range(60):
            answer = httpx.request(method, f"{self.prefect_url}/api{path}", json=body or None, timeout=30)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            time.sleep(0.25)  # its sqlite database is locked; Prefect's own clients try again too
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def deployment(self, name: str, flow: str = "training") -> dict:
        return self.api("GET", f"/deployments/name/{flow}/{name}")

    def begin(
        self,
        name: str,
        *overrides: str,
        flow: str = "training",
        job: dict[str, Any] | None = None,
        **parameters: Any,
    ) -> str:
        """Returns the id of a new flow run of a deployment, made as the UI makes one; `job`: its job variables."""
        deployment = self.deployment(name, flow)
        merged = deployment["parameters"] | parameters | {"overrides": list(overrides)}
        path = f"/deployments/{deployment['id']}/create_flow_run"
        return self.api("POST", path, parameters=merged, job_variables=job or {})["id"]

    def state(self, flow_run_id: str) -> dict:
        return self.api("GET", f"/flow_runs/{flow_run_id}")["state"]

    def ends(self, flow_run_id: str, seconds: float = 120) -> dict:
        """Returns the final state of a flow run."""
        final = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}
        return wait_for(lambda: (s := self.state(flow_run_id))["type"] in final and s, seconds)

    def logs(self, flow_run_id: str) -> str:
        found = self.api("POST", "/logs/filter", logs={"flow_run_id": {"any_": [flow_run_id]}}, limit=200)
        return "\n".join(line["message"] for line in found)

    def summary(self, flow_run_id: str) -> str:
        """Returns the Markdown that stands with a flow run."""
        return str(self.artifact(flow_run_id, "markdown")["data"])

    def artifact(self, flow_run_id: str, kind: str) -> dict:
        """Returns the one artifact of a kind that a flow run has."""
        of_run = {"flow_run_id": {"any_": [flow_run_id]}, "type": {"any_": [kind]}}
        (artifact,) = self.api("POST", "/artifacts/filter", artifacts=of_run)
        return artifact

    def run_of(self, flow_run_id: str) -> Run | None:
        """Returns our run that a flow run carries out, as soon as there is one."""
        for state in list_runs(self.workspace):
            if flow_run_id in state.prefect_flow_run_ids:
                return find_run(self.workspace, state.id)
        return None

    def trains(self, flow_run_id: str, *, epochs: int) -> Run:
        """Returns the run of a flow run once it has trained some epochs."""

        def has_trained():
            run = self.run_of(flow_run_id)
            return run and len(events.history(run.events).get("loss", {})) >= epochs and run

        return wait_for(has_trained)

    def tracked(self, run: Run) -> mlflow.entities.Run:
        return mlflow.MlflowClient(self.mlflow_url).get_run(run.state().mlflow_run_id)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def new_stack(tmp_path):
    """A stack of which nothing runs yet."""
    return Stack(tmp_path, free_port(), free_port())


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    """The stack as the README brings it up, with every deployment of prefect.yaml."""
    stack = Stack(tmp_path_factory.mktemp("stack"), free_port(), free_port())
    try:
        stack.serve(
            "prefect",
            *("prefect", "server", "start", "--port", str(stack.prefect_port)),
            health=f"{stack.prefect_url}/api/health",
        )
        stack.serve(
            "mlflow",
            *("mlflow", "server", "--port", str(stack.mlflow_port)),
            *("--backend-store-uri", f"sqlite:///{stack.folder}/mlflow.db"),
            *("--artifacts-destination", str(stack.folder / "mlartifacts")),
            health=f"{stack.mlflow_url}/health",
        )
        stack.serve("worker", "prefect", "worker", "start", "--pool", POOL, "--type", "process")
        wait_for(lambda: POOL in {pool["name"] for pool in stack.api("POST", "/work_pools/filter")})
        stack.prefect("deploy", "--all")
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def completed(stack) -> Run:
    """The run of a deployment that was started from the command line with a parameter and an override, and watched."""
    printed = stack.prefect(
        *("deployment", "run", "training/digits", "--watch"),
        *("--param", f"evaluate={json.dumps({'batch_size': 90})}"),
        *("--param", f"overrides={json.dumps(['train.total=4 epochs', 'train.seed=11'])}"),
    )
    assert "Flow run finished successfully in 'Completed'" in " ".join(printed.split())
    (state,) = (state for state in list_runs(stack.workspace) if state.id.startswith("digits-"))
    return find_run(stack.workspace, state.id)
