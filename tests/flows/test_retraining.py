"""Retraining: a model of new data is served if the gate accepts it; what is rejected changes nothing that is served."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.testing.utilities import prefect_test_harness

from flows import embedded
from flows.promotion import GATE_NOT_MET, retrain, rollback
from tasks.promote.registered import versions_by_alias
from tasks.promote.serving_directory import numbers, serving_directory
from tests.flows.conftest import DIGITS

TINY = (
    "train.total=10 steps",
    "train.optimizer.schedule.kind=constant",
    "distribute.kind=one_device",
    "evaluate.num_resamples=0",
    "evaluate.check_leaks=false",
    "export.num_parity_examples=8",
    "export.num_timed_calls=1",
    "promote.gate.minimum={}",
)


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_the_champion_changes_only_by_the_gate_or_by_hand(
    workers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLSTREAM_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_LOCKS", str(tmp_path / "locks"))
    for name, value in embedded.SETTINGS.items():
        monkeypatch.setenv(name, value)

    def retrained(*overrides: str, force: bool = False) -> Any:
        capsys.readouterr()
        retrain(DIGITS, *TINY, *overrides, force=force, json=True)
        return json.loads(capsys.readouterr().out)

    def known() -> tuple[dict[str, int], list[int]]:
        return versions_by_alias(client, "digits"), numbers(serving_directory(tmp_path, "digits"))

    with prefect_test_harness(server_startup_timeout=120):
        first = retrained()
        client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
        assert first["cause"] == "digits has no champion yet"
        assert first["outcome"]["decision"]["reasons"] == ["there is no champion yet"]
        assert known() == ({"champion": 1}, [1])

        assert retrained() == {"cause": f"data unchanged since {first['outcome']['run_id']}", "outcome": None}
        assert known() == ({"champion": 1}, [1])

        with pytest.raises(SystemExit) as end:
            retrained("promote.gate.margin=0.5", force=True)
        assert end.value.code == GATE_NOT_MET
        decision = json.loads(capsys.readouterr().out)["outcome"]["decision"]
        # Of the same data and seed comes the same model, to the bit: no lead.
        assert (decision["accepted"], decision["champion"], decision["p_value"]) == (False, 1, 1)
        assert decision["champion_figures"]["accuracy"] == decision["figures"]["accuracy"]
        accuracy = f"{decision['figures']['accuracy']:.6g}"
        assert decision["reasons"] == [
            f"accuracy must be better than the champion's {accuracy} by at least 0.5, and is {accuracy}",
            "chance must give such a lead with a probability of at most 0.05, and gives it with 1 (McNemar, exact: "
            "only the challenger is right on 0, only the champion on 0)",
        ]
        assert known() == ({"champion": 1, "challenger": 2}, [1])
        version = client.get_model_version("digits", "2")
        assert version.tags["millstream.gate"] == "rejected"
        run = client.get_run(version.run_id)
        assert (run.info.status, run.data.tags["millstream.gate"]) == ("FINISHED", "rejected")
        assert run.data.tags["millstream.gate_reasons"] == "; ".join(decision["reasons"])
        assert run.data.metrics["champion/accuracy"] == decision["champion_figures"]["accuracy"]
        # Of the same data: no drift.
        drift = {name: value for name, value in run.data.metrics.items() if name.startswith("drift/")}
        features = ("image.brightness", "label")
        assert drift == dict.fromkeys(
            (*(f"drift/{f}/{d}" for f in features for d in ("psi", "js")), "drift/max_psi"), 0
        )
        files = {item.path for item in client.list_artifacts(version.run_id)}
        assert files >= {"gate.json", "drift.json", "drift.png"}

        assert retrained("promote.gate.margin=-1", force=True)["outcome"]["decision"]["accepted"]
        assert known() == ({"champion": 3, "previous": 1}, [1, 2])
        assert client.get_model_version("digits", "3").tags["millstream.gate"] == "accepted"

        rollback("digits")
        assert known() == ({"champion": 1, "previous": 3}, [2, 3])
