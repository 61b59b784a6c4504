"""Servers: whether Prefect's and MLflow's answer, in which version, with a login, and who works for them."""

import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from packaging.version import Version

from tasks.host.finding import Finding
from tasks.track.client import without_password

_SECONDS = 5.0
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def prefect_findings(
    pool: str, installed: str | None, environment: Mapping[str, str] = os.environ
) -> Iterator[Finding]:
    """Yields what is found of the server that PREFECT_API_URL names, of the work pool there and of its workers.

    `installed` is the version of Prefect here.
    """
    url = environment.get("PREFECT_API_URL", "").rstrip("/")
    if not url:
        yield Finding(name="prefect server", status="ok", found="none named: each run starts a temporary one")
        return
    login = environment.get("PREFECT_API_AUTH_STRING")
    server = _Server(
        "prefect server",
        url,
        login=login,
        open_path="/health",
        guarded_path="/admin/version",
        setting="PREFECT_API_AUTH_STRING",
    )
    problem = server.problem("start it with `prefect server start` or `millstream up`, or unset PREFECT_API_URL")
    if problem is not None:
        yield problem
        return
    yield server.finding(installed)
    status, found = server.ask(f"/work_pools/{pool}")
    if status != 200:
        yield Finding(
            name="work pool",
            status="warning",
            found=f"{pool} is not there",
            fix=f"start a worker, which makes it: `prefect worker start --pool {pool} --type process`",
        )
        return
    _, workers = server.ask(f"/work_pools/{pool}/workers/filter", {})
    alive = [worker["name"] for worker in workers if worker["status"] == "ONLINE"]
    if found["is_paused"]:
        yield Finding(
            name="work pool",
            status="warning",
            found=f"{pool} is paused, so that no run of a deployment begins",
            fix=f"prefect work-pool resume {pool}",
        )
    elif not alive:
        yield Finding(
            name="work pool",
            status="warning",
            found=f"{pool} has no worker that is alive ({len(workers)} known), so that no run of a deployment begins",
            fix=f"prefect worker start --pool {pool} --type process",
        )
    else:
        yield Finding(name="work pool", status="ok", found=f"{pool}, with {', '.join(sorted(alive))}")


def mlflow_findings(uri: str, installed: str | None, environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Yields what is found of the MLflow server at `uri`; a database on this machine is asked nothing."""
    if not uri.startswith(("http://", "https://")):
        yield Finding(name="mlflow server", status="ok", found=f"none named: runs are kept in {without_password(uri)}")
        return
    user, password = environment.get("MLFLOW_TRACKING_USERNAME"), environment.get("MLFLOW_TRACKING_PASSWORD")
    login = f"{user}:{password}" if user and password else None
    server = _Server(
        "mlflow server",
        uri.rstrip("/"),
        login=login,
        open_path="/version",
        guarded_path="/api/2.0/mlflow/experiments/search?max_results=1",
        setting="MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    )
    problem = server.problem("start it with `mlflow server` or `millstream up`, or unset MLFLOW_TRACKING_URI")
    yield problem if problem is not None else server.finding(installed)


class _Server:
    """A server, asked once without and once with a login."""

    def __init__(
        self, name: str, url: str, *, login: str | None, open_path: str, guarded_path: str, setting: str
    ) -> None:
        self._name, self._url, self._login, self._setting = name, url, login, setting
        self._open_status, self._open_answer = self.ask(open_path, login=False)
        self._guarded = guarded_path
        self._has_login = self.ask(guarded_path, login=False)[0] == 401
        self._guarded_status, self._guarded_answer = self.ask(guarded_path)

    def ask(self, path: str, body: Any = None, *, login: bool = True) -> tuple[int, Any]:
        """Returns HTTP status and answer; 0 and the reason in words if there is none."""
        request = urllib.request.Request(  # noqa: S310 - http or https, looked at by the callers and below
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if login and self._login:
            request.add_header("Authorization", f"Basic {base64.b64encode(self._login.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                text = answer.read().decode()
                status = answer.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, ""
        except (OSError, ValueError) as error:
            return 0, str(getattr(error, "reason", error))
        try:
            return status, json.loads(text)
        except ValueError:  # a plain text, such as a version
            return status, text.strip()

    def problem(self, start: str) -> Finding | None:
        """Returns why the server is of no use; None if it is."""
        where = without_password(self._url)
        if self._open_status != 200:
            said = self._open_answer if self._open_status == 0 else f"HTTP status {self._open_status}"
            hint = "name this host in its --allowed-hosts" if self._open_status == 403 else start
            return Finding(name=self._name, status="problem", found=f"{where} does not answer ({said})", fix=hint)
        if self._guarded_status in {401, 403}:
            given = "the login given here is not its own" if self._login else "no login is given here"
            return Finding(
                name=self._name,
                status="problem",
                found=f"{where} wants a login, and {given}",
                fix=f"set {self._setting}",
            )
        return None

    def finding(self, installed: str | None) -> Finding:
        """Returns version and login of a server that can be used."""
        answer = self._guarded_answer if self._guarded.endswith("version") else self._open_answer
        version, where = str(answer), without_password(self._url)
        found = f"{where}, version {version}, {'with' if self._has_login else 'without'} a login"
        if installed is not None and Version(version).release[:2] != Version(installed).release[:2]:
            fix = f"bring both to one release: here is {installed}"
            return Finding(name=self._name, status="warning", found=found, fix=fix)
        if not self._has_login and urlsplit(self._url).hostname not in _LOOPBACK:
            fix = "give it a login, or bind it to 127.0.0.1: who reaches it may read and change all"
            return Finding(name=self._name, status="warning", found=found, fix=fix)
        return Finding(name=self._name, status="ok", found=found)
