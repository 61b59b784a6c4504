"""New data on real servers: retrained by schedule, event and hand; a model promoted, one rejected, one taken back."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import mlflow
import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import csv
from sklearn.datasets import load_breast_cancer

from flows.arrival import EVENT
from tasks.promote.record import GATE, GATE_REASONS_TAG, GATE_TAG, Decision
from tasks.promote.registered import versions_by_alias
from tasks.promote.serving_directory import numbers, serving_directory
from tests.flows.deployed.conftest import wait_for

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400)]
ZONE = ZoneInfo("Asia/Kathmandu")  # 5:45 ahead of UTC: its clock shows what no other does
FOUND = load_breast_cancer()
DIAGNOSES = FOUND.target_names[FOUND.target]


class Step(NamedTuple):
    """What there was after a retraining came to its end, or after a command."""

    flow_run: dict[str, Any]
    aliases: dict[str, int]
    """Of the registry."""
    served: list[int]
    """The numbers in the serving directory."""

    @property
    def end(self) -> tuple[str, str]:
        """State and message of the flow run."""
        return self.flow_run["state"]["type"], self.flow_run["state"]["message"]


@dataclass
class Arrivals:
    """A folder into which tables come, and the deployment that retrains on them."""

    stack: Any
    folder: Path
    fires: datetime
    """When the schedule does, for the first time."""
    told: list[str] = field(default_factory=list)
    """The ids of the events that were sent."""

    @property
    def client(self) -> mlflow.MlflowClient:
        return mlflow.MlflowClient(self.stack.mlflow_url)

    @property
    def deployment(self) -> dict[str, Any]:
        return self.stack.deployment("arrivals-retraining", flow="retraining")

    def arrive(self, name: str, rows: slice, labels: np.ndarray) -> None:
        """Lets a file with some of the tumours come."""
        columns = dict(zip(FOUND.feature_names, FOUND.data[rows].T, strict=True))
        csv.write_csv(pa.table({**columns, "label": labels}), self.folder / "incoming" / f"{name}.csv")

    def deploy(self) -> None:
        self.stack.prefect("deploy", "--all", "--prefect-file", str(self.folder / "prefect.yaml"))

    def tell(self) -> None:
        told = json.loads(self.stack.call("millstream", "notify-data", "arrivals", "--json"))
        assert (told["event"], told["deployment"]) == (EVENT, "retraining/arrivals-retraining")
        self.told.append(told["id"])

    def flow_runs(self, *, scheduled: bool = False) -> list[dict[str, Any]]:
        """Returns the flow runs that the schedule made, or all others, in the order of their times."""
        asked = {"deployments": {"id": {"any_": [self.deployment["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found = self.stack.api("POST", "/flow_runs/filter", **asked)
        return [flow_run for flow_run in found if flow_run["auto_scheduled"] is scheduled]

    def ended(self, flow_run_id: str) -> Step:
        assert self.stack.ends(flow_run_id, 300)["type"] in {"COMPLETED", "CANCELLED"}, self.stack.logs(flow_run_id)
        return self.step(self.stack.api("GET", f"/flow_runs/{flow_run_id}"))

    def step(self, flow_run: dict[str, Any]) -> Step:
        serving = serving_directory(self.stack.workspace, "arrivals")
        return Step(flow_run, versions_by_alias(self.client, "arrivals"), numbers(serving))

    def check_decision(self, step: Step) -> Decision:
        """Returns what the gate said in a flow run, found to be the same wherever it stands."""
        run = self.stack.run_of(step.flow_run["id"])
        decision = Decision.read(run.directory / GATE)
        version, tracked = self.client.get_model_version("arrivals", str(decision.version)), self.stack.tracked(run)
        for tags in (version.tags, tracked.data.tags):
            assert (tags[GATE_TAG], tags[GATE_REASONS_TAG]) == (decision.word, "; ".join(decision.reasons))
        assert (tracked.info.status, tracked.info.run_id) == ("FINISHED", version.run_id)
        figures = {f"champion/{name}": value for name, value in decision.champion_figures.items()}
        figures |= {f"eval/{name}": value for name, value in decision.figures.items()}
        assert figures.items() <= tracked.data.metrics.items()
        assert f"| gate | {decision.line} |" in self.stack.summary(step.flow_run["id"])
        assert step.end == ("COMPLETED", decision.line)
        return decision


@pytest.fixture(scope="module")
def arrivals(stack, tmp_path_factory):
    """Tables whose labels mean nothing have come; the schedule fires within two minutes."""
    folder = tmp_path_factory.mktemp("arrivals")
    fires = (datetime.now(ZONE) + timedelta(seconds=105)).replace(second=0, microsecond=0)
    config = {
        "name": "arrivals",
        "data": {
            "source": {"kind": "table", "path": str(folder / "incoming"), "target": "label"},
            "splits": {"train": 0.6, "validation": 0.1, "test": 0.3},
        },
        "feed": {"global_batch_size": 32, "block": 64, "window": 512},
        "model": {"build": "tasks.models.tabular:build", "args": {"width": 16, "depth": 1}},
        "train": {"total": "10 epochs", "optimizer": {"name": "adam", "learning_rate": 0.01}},
        "distribute": {"kind": "one_device"},
        "evaluate": {"num_resamples": 0, "check_leaks": False},
        "export": {"num_parity_examples": 8, "num_timed_calls": 1},
        "deploy": {"retraining": {"cron": f"{fires.minute} {fires.hour} * * *", "timezone": ZONE.key, "active": True}},
    }
    (folder / "incoming").mkdir()
    (folder / "conf").mkdir()
    (folder / "conf" / "arrivals.yaml").write_text(yaml.safe_dump(config))
    stack.call("millstream", "deployments", "--write", folder=folder)
    arrivals = Arrivals(stack, folder, fires)
    arrivals.arrive("noise", slice(0, 150), np.random.default_rng(0).permutation(DIAGNOSES[:150]))
    arrivals.deploy()
    return arrivals


@pytest.fixture(scope="module")
def by_cron(arrivals):
    """The retraining that the schedule began."""
    scheduled = wait_for(lambda: arrivals.flow_runs(scheduled=True))
    times = [datetime.fromisoformat(flow_run["expected_start_time"]) for flow_run in scheduled]
    assert times == [arrivals.fires + timedelta(days=days) for days in range(len(times))]
    return arrivals.ended(scheduled[0]["id"])


@pytest.fixture(scope="module")
def by_event(arrivals, by_cron):
    """The retrainings for which three events in a row asked, once the diagnoses of other tumours had come."""
    arrivals.deploy()  # again: what is on the server must not be there twice
    arrivals.arrive("diagnoses", slice(150, 450), DIAGNOSES[150:450])
    for _ in range(3):
        arrivals.tell()
    flow_runs = wait_for(lambda: found if len(found := arrivals.flow_runs()) == 3 else None)
    return sorted((arrivals.ended(flow_run["id"]) for flow_run in flow_runs), key=lambda step: step.end, reverse=True)


@pytest.fixture(scope="module")
def by_hand(arrivals, by_event):
    """The retraining that the command line began, once all tumours had come with labels that a coin gave them."""
    arrivals.arrive("coins", slice(0, 569), np.random.default_rng(1).choice(FOUND.target_names, 569))
    arrivals.stack.prefect("deployment", "run", "retraining/arrivals-retraining", "--watch")
    return arrivals.ended(arrivals.flow_runs()[-1]["id"])


@pytest.fixture(scope="module")
def rolled_back(arrivals, by_hand):
    """After `millstream rollback`, and an event although nothing had come."""
    arrivals.stack.call("millstream", "rollback", "arrivals", "--reason", "wrong answers since noon")
    after = arrivals.step({})
    arrivals.tell()
    flow_runs = wait_for(lambda: found if len(found := arrivals.flow_runs()) == 5 else None)
    return after, arrivals.ended(flow_runs[-1]["id"])


def test_the_deployment_has_its_schedule_its_time_zone_and_one_run_at_a_time(arrivals):
    (schedule,) = arrivals.deployment["schedules"]
    fires = {"cron": f"{arrivals.fires.minute} {arrivals.fires.hour} * * *", "timezone": ZONE.key}
    assert fires.items() <= schedule["schedule"].items()
    assert schedule["active"] is True
    assert arrivals.deployment["global_concurrency_limit"]["limit"] == 1
    assert arrivals.deployment["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"


def test_the_schedule_fires_at_the_time_of_its_zone_and_the_first_model_is_served(arrivals, by_cron):
    decision = arrivals.check_decision(by_cron)
    assert (decision.word, decision.reasons) == ("accepted", ("there is no champion yet",))
    assert by_cron[1:] == ({"champion": 1}, [1])


def test_an_event_trains_on_what_came_and_the_better_model_is_served(arrivals, by_event):
    trained, *others = by_event
    assert [step.end[0] for step in others] == ["CANCELLED"] * 2
    decision = arrivals.check_decision(trained)
    assert (decision.word, decision.champion) == ("accepted", 1)
    assert decision.figures["accuracy"] > decision.champion_figures["accuracy"]
    assert trained[1:] == ({"champion": 2, "previous": 1}, [1, 2])


def test_what_is_deployed_twice_is_there_once(arrivals, by_event):
    of_deployment = f"/automations/related-to/prefect.deployment.{arrivals.deployment['id']}"
    (automation,) = arrivals.stack.api("GET", of_deployment)
    assert automation["name"] == "arrivals-data-updated"
    assert automation["trigger"]["expect"] == [EVENT]
    assert automation["trigger"]["match"] == {"prefect.resource.id": "millstream.data.arrivals"}


def test_what_the_gate_rejects_changes_nothing_that_is_served(arrivals, by_hand):
    decision = arrivals.check_decision(by_hand)
    assert (decision.word, decision.champion) == ("rejected", 2)
    assert by_hand[1:] == ({"champion": 2, "previous": 1, "challenger": 3}, [1, 2])


def test_rollback_serves_the_champion_before_under_a_new_number(arrivals, rolled_back):
    after, _ = rolled_back
    assert after[1:] == ({"champion": 1, "previous": 2, "challenger": 3}, [2, 3])
    tags = {number: arrivals.client.get_model_version("arrivals", number).tags for number in "12"}
    assert re.fullmatch(r"3 \(rollback\): .*, wrong answers since noon", tags["1"]["millstream.serving"])
    assert re.fullmatch(r"by version 1 \(rollback\): .*, wrong answers since noon", tags["2"]["millstream.replaced"])


def test_an_event_without_new_data_is_skipped(arrivals, rolled_back, by_hand):
    after, skipped = rolled_back
    judged = arrivals.stack.run_of(by_hand.flow_run["id"])
    assert skipped.end == ("COMPLETED", f"skipped: data unchanged since {judged.id}")
    assert skipped[1:] == after[1:]
    assert arrivals.stack.run_of(skipped.flow_run["id"]) is None


def test_the_server_has_each_event_once(arrivals, rolled_back):
    asked = {"filter": {"event": {"name": [EVENT]}}}
    found = wait_for(
        lambda: f if len(f := arrivals.stack.api("POST", "/events/filter", **asked)["events"]) >= 4 else []
    )
    assert sorted(event["id"] for event in found) == sorted(arrivals.told)
    assert {event["resource"]["prefect.resource.id"] for event in found} == {"millstream.data.arrivals"}


def test_an_event_that_nobody_waits_for_is_refused(stack):
    name = "tumours"
    printed = " ".join(stack.call("millstream", "notify-data", name, code=2).split())
    assert f"{name}: {stack.prefect_url}/api has no deployment retraining/{name}-retraining; give the config" in printed
