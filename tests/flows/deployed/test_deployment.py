"""`prefect deployment run` on real servers: deploy, run, refuse, cancel, kill, go on, wait, schedule."""

import json
import os
import signal
import time

import mlflow
import psutil
import pytest

from tasks import events

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400)]
# Long enough to be interrupted, its steps cut into small calls.
LONG = ("train.total=60 epochs", "train.optimizer.schedule.kind=constant", "train.checkpoint_every=5 steps")

# Prefect's settings by which a flow run whose process is told to end is scheduled anew.
RESCHEDULED = {
    "command": "prefect flow-run execute",
    "env": {"PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule"},
}


def checkpoint_steps(run):
    return sorted(int(path.name) for path in run.checkpoints.iterdir() if path.name.isdigit())


def test_a_watched_run_leaves_a_finished_mlflow_run_with_all_of_it(stack, completed):
    assert completed.state().status == "finished"
    found = stack.tracked(completed)
    assert found.info.status == "FINISHED"
    assert found.data.params["evaluate.batch_size"] == "90"
    assert (found.data.params["train.total"], found.data.params["train.seed"]) == ("4 epochs", "11")
    assert {"loss", "val_accuracy", "perf/examples_per_second", "eval/accuracy"} <= found.data.metrics.keys()
    assert [item.dataset.name for item in found.inputs.dataset_inputs] == ["digits"]
    client = mlflow.MlflowClient(stack.mlflow_url)
    artifacts = {item.path for folder in ("", "report") for item in client.list_artifacts(found.info.run_id, folder)}
    assert {"config.yaml", "report/learning_curves.png", "report/report.html", "report/model_card.md"} <= artifacts
    (version,) = client.search_model_versions(f"name='digits' and run_id='{found.info.run_id}'")
    assert version.tags["millstream.run_id"] == completed.id


def test_mlflow_and_prefect_link_to_each_other(stack, completed):
    found = stack.tracked(completed)
    (flow_run_id,) = completed.state().prefect_flow_run_ids
    link = f"{stack.prefect_url}/flow-runs/flow-run/{flow_run_id}"
    assert found.data.tags["prefect.flow_run_id"] == flow_run_id
    assert found.data.tags["prefect.flow_run_url"] == link
    assert f"({link})" in found.data.tags["mlflow.note.content"]
    assert found.data.tags["prefect.deployment"] == "digits"
    told = stack.summary(flow_run_id)
    for way in ("", "/artifacts/report/report.html"):
        assert f"/runs/{found.info.run_id}{way}?workflowType=machine_learning)" in told
    assert "test accuracy" in told


def test_the_flow_run_has_its_progress_and_a_table_of_its_epochs(stack, completed):
    (flow_run_id,) = completed.state().prefect_flow_run_ids
    progress = stack.artifact(flow_run_id, "progress")
    assert progress["data"] == 100
    assert progress["description"].startswith("epoch 4, step 92 of 92: loss ")
    assert f"/runs/{completed.state().mlflow_run_id}?" in progress["description"]
    epochs = json.loads(stack.artifact(flow_run_id, "table")["data"])
    assert [row["epoch"] for row in epochs] == [1, 2, 3, 4]
    points = events.history(completed.events)
    assert [row["val_loss"] for row in epochs] == list(points["val_loss"].values())


def test_what_the_stages_say_stands_with_the_flow_run(stack, completed):
    logs = stack.logs(completed.state().prefect_flow_run_ids[0])
    for words in ("prepare: 6 shards", "train: epoch 4: loss", "evaluate: test accuracy", "register: models:/digits/"):
        assert words in logs


@pytest.mark.parametrize(
    ("parameter", "name"),
    [("trian={}", "trian"), ('train={"totl": "3 epochs"}', "totl"), ('train={"total": "3 epoks"}', "3 epoks")],
)
def test_a_wrong_parameter_is_refused_when_the_run_is_created(stack, parameter, name):
    printed = stack.prefect("deployment", "run", "training/digits", "--param", parameter, code=1)
    assert name in printed


def test_a_wrong_override_fails_by_name_before_any_work(stack):
    state = stack.ends(stack.begin("digits", "train.totl=3 epochs"))
    assert state["type"] == "FAILED"
    assert "train.totl='3 epochs': no such field; did you mean train.total?" in state["message"]


@pytest.mark.parametrize("workspace", ["", "workspace"])
def test_a_deployed_run_without_an_absolute_workspace_is_refused_with_the_reason(stack, workspace):
    deployment = stack.deployment("digits")
    variables = {"env": {"MILLSTREAM_WORKSPACE": workspace}}
    created = stack.api("POST", f"/deployments/{deployment['id']}/create_flow_run", job_variables=variables)
    state = stack.ends(created["id"])
    assert state["type"] == "FAILED"
    assert f"MILLSTREAM_WORKSPACE={workspace}: must be an absolute path in a deployment" in state["message"]


def test_cancelled_killed_or_rescheduled_the_next_run_goes_on_to_the_end(stack):
    settings = (*LONG, "train.seed=21")
    first = stack.begin("digits", *settings)
    run = stack.trains(first, epochs=3)
    children = psutil.Process(run.state().pid).children(recursive=True)
    assert len(children) >= 2, "the workers' server and the training child"

    stack.api("POST", f"/flow_runs/{first}/set_state", state={"type": "CANCELLING"})  # what the UI's button sends
    assert psutil.wait_procs(children, timeout=15)[1] == []
    assert stack.ends(first)["type"] == "CANCELLED"
    assert run.state().status == "killed"
    assert stack.tracked(run).info.status == "KILLED"
    cancelled_at = checkpoint_steps(run)[-1]
    assert cancelled_at >= 3 * 23

    second = stack.begin("digits", *settings)
    assert stack.trains(second, epochs=6).id == run.id
    flow_process = psutil.Process(run.state().pid)
    children = flow_process.children(recursive=True)
    os.kill(flow_process.pid, signal.SIGKILL)
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert stack.ends(second)["type"] == "CRASHED"

    third = stack.begin("digits", *settings, "train.steps_per_call=64", job=RESCHEDULED)
    assert stack.trains(third, epochs=9).id == run.id
    supervisor = psutil.Process(run.state().pid).parent()
    supervisor.terminate()  # as a cluster ends the process of a job
    supervisor.wait(30)
    assert run.state().status == "killed"
    assert stack.tracked(run).info.status == "KILLED"
    rescheduled_at = checkpoint_steps(run)[-1]
    assert stack.ends(third)["type"] == "COMPLETED", "begun anew by the worker, under the same id"
    assert run.state().prefect_flow_run_ids == (first, second, third)
    assert json.loads((run.directory / "train.json").read_text())["resumed_from_step"] == rescheduled_at > cancelled_at
    found = stack.tracked(run)
    assert found.info.status == "FINISHED"
    points = mlflow.MlflowClient(stack.mlflow_url).get_metric_history(found.info.run_id, "loss")
    assert [point.step for point in points] == [23 * epoch for epoch in range(1, 61)]


def test_a_second_run_of_a_deployment_waits_for_the_first(stack):
    first = stack.begin("digits", *LONG, "train.seed=31")
    run = stack.trains(first, epochs=1)
    second = stack.begin("digits", *LONG, "train.seed=32")
    waits = lambda: stack.state(second)["name"] == "AwaitingConcurrencySlot"  # noqa: E731
    for _ in range(100):
        if waits():
            break
        time.sleep(0.2)
    assert waits()
    assert stack.run_of(second) is None
    for flow_run_id in (second, first):
        stack.api("POST", f"/flow_runs/{flow_run_id}/set_state", state={"type": "CANCELLING"})
    assert stack.ends(first)["type"] == "CANCELLED"
    assert stack.ends(second)["type"] == "CANCELLED"
    assert run.state().status == "killed"


def test_when_busy_cancel_cancels_the_second_run(stack):
    deployment = stack.deployment("digits-weekly")
    limit = {"concurrency_limit": 1, "concurrency_options": {"collision_strategy": "CANCEL_NEW"}}
    stack.api("PATCH", f"/deployments/{deployment['id']}", **limit)
    first = stack.begin("digits-weekly", *LONG, "train.seed=41")
    stack.trains(first, epochs=1)
    second = stack.begin("digits-weekly", *LONG, "train.seed=42")
    assert stack.ends(second)["type"] == "CANCELLED"
    stack.api("POST", f"/flow_runs/{first}/set_state", state={"type": "CANCELLING"})
    assert stack.ends(first)["type"] == "CANCELLED"


def test_two_deployments_take_the_devices_one_after_the_other(stack):
    first = stack.begin("digits", *LONG, "train.seed=51")
    run = stack.trains(first, epochs=1)
    second = stack.begin("digits-weekly", "train.total=3 epochs", "train.seed=52")
    for _ in range(300):
        if "waits for cpu" in stack.logs(second):
            break
        time.sleep(0.2)
    assert f"waits for cpu, held by run {run.id} (process {run.state().pid})" in stack.logs(second)
    stack.api("POST", f"/flow_runs/{first}/set_state", state={"type": "CANCELLING"})
    assert stack.ends(second)["type"] == "COMPLETED"
    assert stack.ends(first)["type"] == "CANCELLED"


def test_a_schedule_starts_runs_by_itself(stack):
    deployment = stack.deployment("digits-weekly")
    (weekly,) = deployment["schedules"]
    assert (weekly["active"], weekly["schedule"]["timezone"]) == (False, "Europe/Berlin")
    assert weekly["schedule"]["cron"] == "0 3 * * 1"
    stack.prefect("deployment", "schedule", "create", "training/digits-weekly", "--interval", "10")
    try:
        started = []
        for _ in range(300):
            found = stack.api(
                "POST",
                "/flow_runs/filter",
                deployments={"id": {"any_": [deployment["id"]]}},
                flow_runs={"state": {"type": {"any_": ["RUNNING", "COMPLETED"]}}},
            )
            started = [flow_run for flow_run in found if flow_run["auto_scheduled"]]
            if started:
                break
            time.sleep(0.2)
        assert started, "no run was started by the schedule"
    finally:
        for schedule in stack.deployment("digits-weekly")["schedules"]:
            if schedule["id"] != weekly["id"]:
                stack.api("DELETE", f"/deployments/{deployment['id']}/schedules/{schedule['id']}")
    assert stack.ends(started[0]["id"])["type"] == "COMPLETED"
