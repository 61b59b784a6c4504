"""A sweep that is killed or interrupted and goes on, read back from MLflow. Long proofs: `make prove`."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from flows.study import Trial
from tasks import events
from tasks.config import load_config
from tasks.runs import find_run, list_runs
from tasks.strict_yaml import read_tree
from tests.flows.conftest import DIGITS, Command

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400)]

SWEEP = {
    "space": {
        "train.optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "model.args.width": {"choices": [8, 16]},
    },
    "num_trials": 4,
    "pruning": {"first_trials": 1},
}
SHORT = ("train.total=3 epochs", "train.optimizer.schedule.kind=constant", "train.checkpoint_every=5 steps")


def test_a_killed_sweep_goes_on_and_its_best_config_runs_as_it_is(tmp_path: Path) -> None:
    millstream, conf = Command(tmp_path / "workspace"), tmp_path / "digits.yaml"
    conf.write_text(yaml.safe_dump({**read_tree(DIGITS), "sweep": SWEEP}))

    killed = millstream.start("sweep", conf, *SHORT)
    second = _begun(millstream.workspace, 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()

    found = json.loads(millstream("sweep", conf, *SHORT, "--json").stdout)
    trials = [Trial.model_validate(trial) for trial in found["trials"]]
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    assert trials[1].values == second.values
    statuses = [trial.status for trial in trials]
    assert statuses[0] == "completed"
    assert set(statuses) == {"completed", "pruned"}
    assert sorted(trial.run_id for trial in trials) == sorted(state.id for state in list_runs(millstream.workspace))
    for trial in trials:
        assert (list(trial.figures) == [1, 2, 3]) or trial.status == "pruned"
    best = min((trial for trial in trials if trial.best is not None), key=lambda trial: trial.best)
    assert Trial.model_validate(found["best"]) == best

    client = MlflowClient(f"sqlite:///{millstream.workspace / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = {run.data.tags["millstream.run_id"]: run for run in runs if run is not parent}
    assert set(children) == {trial.run_id for trial in trials}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert parent.data.metrics == {
        "best_val_loss": best.best,
        "best_trial": best.number,
        "num_trials": 4,
        "num_pruned": statuses.count("pruned"),
        "num_failed": 0,
    }
    for trial in trials:
        params = children[trial.run_id].data.params
        assert {name: str(value) for name, value in trial.values.items()} == {
            name: params[name] for name in trial.values
        }
    artifact = Path(client.download_artifacts(parent.info.run_id, "best.yaml", str(tmp_path)))
    assert artifact.read_bytes() == Path(found["best_config"]).read_bytes()
    assert load_config(artifact).train.optimizer.learning_rate == best.values["train.optimizer.learning_rate"]

    outcome = json.loads(millstream("run", artifact, "--json").stdout)
    assert outcome["run_id"] == best.run_id  # whose training is not done again
    assert outcome["trained"]["best_value"] == best.best
    assert outcome["registered"]["version"] == 1


def test_an_interrupted_sweep_is_killed_in_mlflow_with_its_trial(tmp_path: Path) -> None:
    millstream, conf = Command(tmp_path / "workspace"), tmp_path / "digits.yaml"
    conf.write_text(yaml.safe_dump({**read_tree(DIGITS), "sweep": SWEEP}))
    process = millstream.start("sweep", conf, "train.total=1000 epochs")
    _begun(millstream.workspace, 0)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate()
    assert process.returncode == 130
    client = MlflowClient(f"sqlite:///{millstream.workspace / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert [run.info.status for run in runs] == ["KILLED", "KILLED"]


def _begun(workspace: Path, number: int) -> Trial:
    """Returns a trial of a sweep, once it has trained an epoch."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        states = list_runs(workspace)
        if len(states) == number + 1 and events.history(find_run(workspace, states[0].id).events).get("loss"):
            (file,) = workspace.glob(f"sweeps/*/trials/{number:04}.json")
            return Trial.read(file)
        time.sleep(0.02)
    raise AssertionError(f"trial {number} did not begin")
