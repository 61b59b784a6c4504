"""`millstream up`: everything that deployments need, in one terminal."""

import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]


@pytest.fixture
def up(new_stack):
    """A stack that `millstream up` brought up: (stack, process, log file)."""
    with new_stack.up() as (process, log):
        yield new_stack, process, log


def test_one_command_brings_all_up_and_one_ctrl_c_stops_all(up):
    stack, process, log = up
    deployments = {deployment["name"] for deployment in stack.api("POST", "/deployments/filter")}
    assert deployments == {
        "digits-weekly",
        "digits-retraining",
        *(config.stem for config in (ROOT / "conf").glob("*.yaml")),
    }
    automations = stack.api("POST", "/automations/filter")
    assert [automation["name"] for automation in automations] == ["digits-data-updated"]
    settings = f"export PREFECT_API_URL={stack.prefect_url}/api MLFLOW_TRACKING_URI={stack.mlflow_url}"
    assert settings in log.read_text()

    second = subprocess.run(
        ["millstream", "up"], env=stack.environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    assert f"is up already, by process {process.pid}: Prefect {stack.prefect_url}" in second.stderr

    flow_run_id = stack.begin("digits", "train.total=2 epochs", "train.optimizer.schedule.kind=constant")
    assert stack.ends(flow_run_id)["type"] == "COMPLETED"
    assert stack.tracked(stack.run_of(flow_run_id)).info.status == "FINISHED"

    descendants = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert psutil.wait_procs(descendants, timeout=5)[1] == []


def test_a_killed_up_takes_its_servers_with_it(up):
    _, process, _ = up
    servers = psutil.Process(process.pid).children()
    process.kill()
    assert psutil.wait_procs(servers, timeout=15)[1] == []


def test_a_taken_port_is_named(new_stack):
    with socket.socket() as other:
        other.bind(("127.0.0.1", new_stack.prefect_port))
        other.listen()
        refused = subprocess.run(
            ["millstream", "up", "--prefect-port", str(new_stack.prefect_port)],
            env=new_stack.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert refused.returncode == 2
    assert f"port {new_stack.prefect_port} of 127.0.0.1 is taken by another program" in refused.stderr
