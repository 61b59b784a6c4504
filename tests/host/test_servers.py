"""What the doctor makes of servers' answers; the real servers are in tests/flows/deployed/test_operation.py."""

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks.host.finding import Finding
from tasks.host.servers import mlflow_findings, prefect_findings
from tests.serving import serving

POOL = {"name": "gpu-pool", "is_paused": False}
WORKERS = [{"name": "one", "status": "ONLINE"}, {"name": "two", "status": "OFFLINE"}]


class Answers(ThreadingHTTPServer):
    """A server that gives the answers it was told, and asks for a login if it has one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.login: str | None = None
        self.answers: dict[str, object] = {
            "/health": True,
            "/admin/version": "3.9.1",
            "/work_pools/gpu-pool": POOL,
            "/work_pools/gpu-pool/workers/filter": WORKERS,
            "/version": "3.17.0",
            "/api/2.0/mlflow/experiments/search": {},
        }


class Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        login = base64.b64encode((self.server.login or "").encode()).decode()
        guarded = self.server.login and path not in {"/health", "/version"}
        refused = guarded and self.headers.get("Authorization") != f"Basic {login}"
        self.send_response(401 if refused else 200 if path in self.server.answers else 404)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answers.get(path)).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[Answers]:
    with serving(Answers()) as server:
        yield server


def prefect(server: Answers, **environment: str) -> list[Finding]:
    return list(prefect_findings("gpu-pool", "3.9.1", {"PREFECT_API_URL": server.url, **environment}))


def test_servers_that_are_not_named_are_not_asked():
    [prefect] = prefect_findings("gpu-pool", "3.9.1", {})
    assert (prefect.status, prefect.found) == ("ok", "none named: each run starts a temporary one")
    [mlflow] = mlflow_findings("sqlite:///mlflow.db", "3.17.0", {})
    assert (mlflow.status, mlflow.found) == ("ok", "none named: runs are kept in sqlite:///mlflow.db")


def test_server_pool_and_worker_that_are_well(server):
    assert prefect(server) == [
        Finding(name="prefect server", status="ok", found=f"{server.url}, version 3.9.1, without a login"),
        Finding(name="work pool", status="ok", found="gpu-pool, with one"),
    ]
    [mlflow] = mlflow_findings(server.url, "3.17.2", {})
    assert mlflow == Finding(name="mlflow server", status="ok", found=f"{server.url}, version 3.17.0, without a login")


def test_server_that_does_not_answer_is_a_problem():
    [finding] = prefect_findings("gpu-pool", "3.9.1", {"PREFECT_API_URL": "http://127.0.0.1:9/api"})
    assert finding.status == "problem"
    assert finding.found == "http://127.0.0.1:9/api does not answer ([Errno 111] Connection refused)"
    [finding] = mlflow_findings("http://me:secret@127.0.0.1:9", "3.17.0", {})
    assert finding.found.startswith("http://127.0.0.1:9 does not answer")


def test_login_is_found_out_and_asked_for(server):
    server.login = "me:secret"
    [without] = prefect(server)
    assert (without.status, without.fix) == ("problem", "set PREFECT_API_AUTH_STRING")
    assert without.found.endswith("wants a login, and no login is given here")
    [wrong] = prefect(server, PREFECT_API_AUTH_STRING="me:wrong")
    assert wrong.found.endswith("wants a login, and the login given here is not its own")
    right, _ = prefect(server, PREFECT_API_AUTH_STRING="me:secret")
    assert right.found.endswith("version 3.9.1, with a login")
    user = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "secret"}
    [mlflow] = mlflow_findings(server.url, "3.17.0", user)
    assert mlflow.found.endswith("version 3.17.0, with a login")
    assert "secret" not in str([without, wrong, right, mlflow])


def test_another_release_is_a_warning(server):
    server.answers |= {"/admin/version": "3.4.0", "/version": "2.9.0"}
    assert prefect(server)[0].fix == "bring both to one release: here is 3.9.1"
    [mlflow] = mlflow_findings(server.url, "3.17.0", {})
    assert (mlflow.status, mlflow.fix) == ("warning", "bring both to one release: here is 3.17.0")


@pytest.mark.parametrize(
    ("path", "answer", "found", "fix"),
    [
        ("/work_pools/gpu-pool", None, "gpu-pool is not there", "prefect worker start --pool gpu-pool --type process"),
        ("/work_pools/gpu-pool", POOL | {"is_paused": True}, "is paused", "prefect work-pool resume gpu-pool"),
        (
            "/work_pools/gpu-pool/workers/filter",
            WORKERS[1:],
            "has no worker that is alive (1 known)",
            "prefect worker start --pool gpu-pool --type process",
        ),
    ],
    ids=["no pool", "paused", "no worker"],
)
def test_pool_for_which_nobody_works_is_a_warning(server, path, answer, found, fix):
    if answer is None:
        del server.answers[path]
    else:
        server.answers[path] = answer
    pool = prefect(server)[-1]
    assert (pool.name, pool.status) == ("work pool", "warning")
    assert found in pool.found
    assert fix in pool.fix
