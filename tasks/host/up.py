"""Up: the Prefect server, the MLflow server, a worker and the deployments of this folder, as one foreground process."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tasks.config import load_config
from tasks.deployment import DeployConfig
from tasks.errors import ConfigError, MillstreamError
from tasks.files import Record, lock, write_atomic
from tasks.workers.guard import guard

HOST = "127.0.0.1"
ALERT_WEBHOOK = "MILLSTREAM_ALERT_WEBHOOK"  # URL that is told of flow runs that fail, crash or are late
START_SECONDS = 120  # on a busy machine a server imports for a long time
STOP_SECONDS = 30  # a worker lets its flow runs write their checkpoints
logger = logging.getLogger("millstream")


class Service(Record):
    """A program that `up` keeps running."""

    name: str
    command: tuple[str, ...]
    health: str
    """URL that answers 200 once the service is ready."""


class Addresses(Record):
    """Where the two servers are."""

    prefect: str
    mlflow: str

    def environment(self, workspace: Path) -> dict[str, str]:
        """Returns what programs must be told to use these servers and this workspace."""
        return {
            "PREFECT_API_URL": f"{self.prefect}/api",
            "MLFLOW_TRACKING_URI": self.mlflow,
            "MILLSTREAM_WORKSPACE": str(workspace),
        }


def plan(workspace: Path, *, prefect_port: int, mlflow_port: int, pool: str) -> tuple[Addresses, list[Service]]:
    """Returns the addresses and the services in the order in which they start; starts nothing."""
    addresses = Addresses(prefect=f"http://{HOST}:{prefect_port}", mlflow=f"http://{HOST}:{mlflow_port}")
    programs = Path(sys.executable).parent
    return addresses, [
        Service(
            name="prefect",
            command=(str(programs / "prefect"), "server", "start", "--host", HOST, "--port", str(prefect_port)),
            health=f"{addresses.prefect}/api/health",
        ),
        Service(
            name="mlflow",
            command=(
                *(str(programs / "mlflow"), "server", "--host", HOST, "--port", str(mlflow_port)),
                *("--backend-store-uri", f"sqlite:///{workspace / 'mlflow.db'}"),
                *("--artifacts-destination", str(workspace / "mlartifacts")),
            ),
            health=f"{addresses.mlflow}/health",
        ),
        Service(
            name="worker",
            command=(str(programs / "prefect"), "worker", "start", "--pool", pool, "--type", "process"),
            health=f"{addresses.prefect}/api/work_pools/{pool}",  # there once the worker has made it
        ),
    ]


def watch(workspace: Path, *, prefect_port: int, mlflow_port: int) -> None:
    """Starts the servers, a worker and the deployments of ./prefect.yaml, and keeps them until it is interrupted; then
    stops all, the worker first. What they print goes to the log, with their names.

    Raises ConfigError if a port is taken or another `up` runs on this workspace, MillstreamError if a service ends.
    """
    webhook = _webhook()
    addresses, services = plan(workspace, prefect_port=prefect_port, mlflow_port=mlflow_port, pool=_pool(Path("conf")))
    with ExitStack() as stack:
        _claim(stack, workspace, addresses)
        for name, port in (("--prefect-port", prefect_port), ("--mlflow-port", mlflow_port)):
            if _is_taken(port):
                raise ConfigError(f"port {port} of {HOST} is taken by another program; name another with {name}")
        # The webhook is a secret: only what stores it gets to see it.
        inherited = {name: value for name, value in os.environ.items() if name != ALERT_WEBHOOK}
        environment = {**inherited, "DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
        environment |= {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", **addresses.environment(workspace)}
        processes = {}
        for service in services:
            processes[service.name] = stack.enter_context(_started(service, environment))
            _wait_until_ready(service, processes[service.name])
        if Path("prefect.yaml").is_file():
            _call("prefect deploy --all", ["prefect", "--no-prompt", "deploy", "--all"], environment)
        if webhook is not None:
            alerts = {**environment, ALERT_WEBHOOK: webhook}
            _call(f"setting up the alerts of {ALERT_WEBHOOK}", ["python", "-m", "flows.alerts"], alerts)
            logger.info("up: flow runs that fail, crash or are late are told to the webhook of %s", ALERT_WEBHOOK)
        settings = " ".join(f"{name}={value}" for name, value in addresses.environment(workspace).items())
        logger.info("up: Prefect %s, MLflow %s; Ctrl-C stops both and the worker", addresses.prefect, addresses.mlflow)
        logger.info("up: in another terminal first: export %s", settings)
        while True:
            for name, process in processes.items():
                if process.poll() is not None:
                    raise _ended(name, process)
            time.sleep(0.5)


def _pool(conf: Path) -> str:
    """Returns the work pool of the configs in a folder, which all share one worker here."""
    pools = {load_config(path).deploy.work_pool for path in conf.glob("*.yaml")} or {DeployConfig().work_pool}
    if len(pools) > 1:
        raise ConfigError(f"{conf}: deploy.work_pool differs ({', '.join(sorted(pools))}); start their workers by hand")
    return pools.pop()


def _claim(stack: ExitStack, workspace: Path, addresses: Addresses) -> None:
    holder = workspace / ".up.json"
    try:
        stack.enter_context(lock(workspace / ".up.lock", timeout_seconds=0))
    except TimeoutError:
        other = json.loads(holder.read_bytes())
        raise ConfigError(
            f"{workspace}: is up already, by process {other['pid']}: "
            f"Prefect {other['prefect']}, MLflow {other['mlflow']}; use that one, or stop it first"
        ) from None
    write_atomic(holder, json.dumps({"pid": os.getpid(), **addresses.model_dump()}).encode())


@contextmanager
def _started(service: Service, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        service.command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a Ctrl-C is ours to answer, in our order
    )
    guard(process.pid)
    threading.Thread(target=_repeat, args=(service.name, process), daemon=True).start()
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _repeat(name: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip():
            logger.info("%s | %s", name, line.rstrip())


def _wait_until_ready(service: Service, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(service.health):
        if process.poll() is not None:
            raise _ended(service.name, process)
        if time.monotonic() > deadline:
            raise MillstreamError(f"{service.name} does not answer at {service.health} after {START_SECONDS} s")
        time.sleep(0.2)


def _ended(name: str, process: subprocess.Popen[str]) -> MillstreamError:
    return MillstreamError(f"{name} ended with exit code {process.returncode}; its last words are above")


def _call(what: str, command: list[str], environment: dict[str, str]) -> None:
    """Runs a program of this Python's environment to its end."""
    program, *arguments = command
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MillstreamError(f"{what} failed: {(done.stdout + done.stderr).strip()}")


def _webhook(environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns where alerts go, None if nowhere; raises ConfigError, without the secret, if it is no URL."""
    webhook = environment.get(ALERT_WEBHOOK)
    if webhook and not (urlsplit(webhook).scheme in {"http", "https"} and urlsplit(webhook).hostname):
        raise ConfigError(f"{ALERT_WEBHOOK}: must be a URL that begins with https:// or http://")
    return webhook or None


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
