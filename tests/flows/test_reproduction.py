"""`millstream reproduce`: the whole pipeline once more, from MLflow, to the same bits; and nothing is registered."""

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.testing.utilities import prefect_test_harness

from flows import embedded
from flows.lineage import NOT_REPRODUCED, lineage, reproduce
from flows.promotion import retrain
from tasks.errors import RunError
from tasks.runs import find_run
from tasks.train.stage import find_result
from tests.conftest import TrainedRun
from tests.flows.conftest import DIGITS
from tests.flows.test_retraining import TINY


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_run_is_reproduced_to_the_bit_and_what_is_not_is_told(
    workers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "workspace"
    monkeypatch.setenv("MILLSTREAM_WORKSPACE", str(workspace))
    monkeypatch.setenv("MILLSTREAM_LOCKS", str(tmp_path / "locks"))
    for name, value in embedded.SETTINGS.items():
        monkeypatch.setenv(name, value)
    config = shutil.copy(DIGITS, tmp_path)  # out of the checkout, which may have changes

    def asked(command: Any, *arguments: Any, **options: Any) -> Any:
        capsys.readouterr()
        command(*arguments, **options, json=True)
        return json.loads(capsys.readouterr().out)

    with prefect_test_harness(server_startup_timeout=120):
        first = asked(retrain, Path(config), *TINY)["outcome"]
        client = MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}")

        with pytest.raises(RunError, match=r"config: key of the config was .*\n.*--allow config"):
            reproduce(first["run_id"], "train.seed=1")

        shutil.rmtree(workspace / "data")  # the shards are written anew, to the same bytes
        shutil.rmtree(workspace / "raw")
        found = asked(reproduce, "digits@champion")
        assert (found["is_exact"], found["reproduces"], found["inexact"]) == (True, first["run_id"], [])
        assert found["weights"]["num_variables"] > 10
        assert (found["weights"]["num_different"], found["weights"]["largest"]) == (0, 0)
        assert {figure["difference"] for figure in found["figures"].values()} == {0}
        assert {"loss", "val_loss", "eval/accuracy", "best_step", "data/num_examples_train"} <= found["figures"].keys()

        again = find_run(workspace, found["run_id"])
        mlflow_run = client.get_run(again.state().mlflow_run_id)
        assert (again.state().status, mlflow_run.info.status) == ("finished", "FINISHED")
        assert mlflow_run.data.tags["millstream.reproduces"] == first["run_id"]
        assert len(client.search_model_versions("name = 'digits'")) == 1
        (chain,) = asked(lineage, "serving/digits/1")
        assert (chain["run"]["run_id"], chain["reproductions"]) == (first["run_id"], [again.id])

        changed = asked(reproduce, first["run_id"], "train.seed=1", allow="config")
        assert (changed["is_exact"], changed["inexact"]) == (False, ["something has changed, as was allowed"])
        assert changed["weights"]["largest"] > 0
        assert changed["figures"]["loss"]["then"] != changed["figures"]["loss"]["now"]

        run = find_run(workspace, first["run_id"])
        TrainedRun(run, first["shards"], find_result(run)).change_weights(lambda bias: bias + 1)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            reproduce(first["run_id"])
        assert end.value.code == NOT_REPRODUCED
        printed = capsys.readouterr()
        assert "weights: 1 of " in printed.err
        assert "variables differ, by at most 1, in " in printed.err
        assert "not the same, though train.deterministic promises it" in printed.err
        assert printed.out.split()[:4] == ["metric", "then", "now", "difference"]
