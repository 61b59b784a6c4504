"""The challenge: what became the champion before the gate was asked stays it, and the run says so."""

import shutil
from pathlib import Path

from mlflow import MlflowClient

from tasks.promote.challenge import challenge
from tasks.promote.promotion import promote
from tasks.promote.record import GATE, Decision
from tasks.promote.registered import versions_by_alias
from tasks.promote.serving_directory import numbers, serving_directory
from tasks.runs import find_run
from tests.promote.conftest import Registered


def test_what_was_promoted_by_hand_before_the_gate_was_asked_stays_the_champion(
    place: tuple[Path, MlflowClient], every_kind: Registered
) -> None:
    workspace, client = place
    shutil.copytree(every_kind.run.directory, workspace / "runs" / every_kind.run.id)
    run = find_run(workspace, every_kind.run.id)
    promote("every_kind/1", workspace, reason="by hand")
    challenger = every_kind.model.model_copy(update={"version": 1})
    for _ in range(2):  # the second time as the flow does that was interrupted
        decision = challenge(run, every_kind.shards, every_kind.report, every_kind.exported, challenger)
        assert (decision.accepted, decision.reasons) == (True, ("it is the champion already",))
    assert Decision.read(run.directory / GATE) == decision
    assert client.get_model_version("every_kind", "1").tags["millstream.gate"] == "accepted"
    assert versions_by_alias(client, "every_kind") == {"champion": 1}
    assert numbers(serving_directory(workspace, "every_kind")) == [1]
