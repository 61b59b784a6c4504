"""One box in operation: who listens where, what the doctor says of it, and who is told when a run fails."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SOCK_DGRAM, SOCK_STREAM

import psutil
import pytest

from tests.serving import serving

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[3]
MILLSTREAM = Path(sys.executable).with_name("millstream")
SECRET = "T0s3cret"  # noqa: S105 - of a receiver of this test


class Receiver(ThreadingHTTPServer):
    """Takes what is posted to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str, dict]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"

    def told(self, state: str) -> dict:
        """Returns the first message of a state."""
        end = time.monotonic() + 90
        while time.monotonic() < end:
            for path, message in self.received:
                assert path == f"/{SECRET}"
                if message["state"] == state:
                    return message
            time.sleep(0.2)
        raise AssertionError(f"nothing was told of {state}: {self.received}")


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def up(receiver, new_stack, monkeypatch):
    """A stack that `millstream up` brought up with a webhook: (stack, process, log file)."""
    monkeypatch.setenv("MILLSTREAM_ALERT_WEBHOOK", receiver.url)
    with new_stack.up() as (process, log):
        yield new_stack, process, log


def listening(pid: int) -> set[tuple[str, int]]:
    """Returns address and port of every socket on which a process or one below it waits for others."""
    found = set()
    try:
        for process in (root := psutil.Process(pid), *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                connections = process.net_connections(kind="inet")
                found |= {
                    (each.laddr.ip, each.laddr.port)
                    for each in connections
                    if not each.raddr and each.type == SOCK_STREAM
                }
                found |= {(each.laddr.ip, each.laddr.port) for each in connections if each.type == SOCK_DGRAM}
    except psutil.NoSuchProcess:
        pass
    return found


def test_up_listens_on_loopback_only_and_the_doctor_finds_all_well(up):
    stack, process, _ = up
    found = listening(process.pid)
    assert {port for _, port in found} >= {stack.prefect_port, stack.mlflow_port}
    assert {address for address, _ in found} == {"127.0.0.1"}

    done = subprocess.run(
        ["millstream", "doctor", "conf/digits.yaml", "--json"],
        env=stack.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    for name, url in (("prefect server", f"{stack.prefect_url}/api"), ("mlflow server", stack.mlflow_url)):
        assert findings[name]["status"] == "ok"
        assert findings[name]["found"].startswith(f"{url}, version ")
        assert findings[name]["found"].endswith(", without a login")
    assert findings["work pool"]["found"].startswith("gpu-pool, with ")
    assert findings["schedule digits-weekly"]["found"].count(" 03:00 ") == 5


def test_run_listens_on_loopback_only(tmp_path):
    """The temporary Prefect server is all that it opens; TensorFlow and the workers open nothing."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    environment |= {"MILLSTREAM_WORKSPACE": str(tmp_path / "workspace"), "PREFECT_HOME": str(tmp_path / "prefect")}
    environment |= {"MILLSTREAM_LOCKS": str(tmp_path / "locks")}
    short = ("train.total=5 epochs", "train.optimizer.schedule.warmup=1 epochs")
    process = subprocess.Popen(
        [MILLSTREAM, "run", ROOT / "conf" / "digits.yaml", *short],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    found = set()
    while process.poll() is None:
        found |= listening(process.pid)
        time.sleep(0.1)
    assert process.returncode == 0
    assert {address for address, _ in found} == {"127.0.0.1"}
    assert len(found) == 1


def test_webhook_is_told_what_failed_where_the_log_is_and_what_to_do(up, receiver):
    stack, _, log = up
    failed = stack.begin("digits-retraining", "train.total=3 epoks", flow="retraining")
    assert stack.ends(failed)["type"] == "FAILED"
    message = receiver.told("Failed")
    name = stack.api("GET", f"/flow_runs/{failed}")["name"]
    assert message["flow_run"] == name
    for words in (
        f"flow run {name} of digits-retraining is Failed.",
        "train.total='3 epoks': must be a whole number and a unit",
        f"Log: {stack.prefect_url}/runs/flow-run/{failed}",
        f"{stack.workspace}/runs/",
        "it goes on where it stopped: `prefect deployment run 'retraining/digits-retraining'`",
    ):
        assert words in message["text"]

    stack.api("PATCH", "/work_pools/gpu-pool", is_paused=True)
    late = stack.begin("digits")
    message = receiver.told("Late")
    assert "no worker has taken it; `millstream doctor` says why" in message["text"]
    stack.api("DELETE", f"/flow_runs/{late}")

    assert [state["state"] for _, state in receiver.received] == ["Failed", "Late"]
    [block] = stack.api("POST", "/block_documents/filter", block_documents={"name": {"any_": ["millstream-alerts"]}})
    assert SECRET not in json.dumps(block)
    assert SECRET not in json.dumps(stack.api("POST", "/automations/filter"))
    assert SECRET not in log.read_text()
