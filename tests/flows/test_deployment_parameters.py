"""What prefect.yaml gives each deployment is what Prefect's server takes: its own check of it, by the flow's schema."""

from pathlib import Path

import pytest
import yaml
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate

from flows.deployments import render
from flows.retraining import retraining
from flows.sweep import sweep
from flows.training import training

CONF = Path(__file__).parents[2] / "conf"
DEPLOYMENTS = yaml.safe_load(render(CONF))["deployments"]
FLOWS = {
    "flows/training.py:training": training,
    "flows/retraining.py:retraining": retraining,
    "flows/sweep.py:sweep": sweep,
}


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_server_takes_the_parameters(deployment):
    _validate(deployment)


def test_server_takes_the_parameters_of_a_sweep(tmp_path):
    space = (
        "{train.optimizer.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}, model.args.width: {choices: [8, 16]}}"
    )
    (tmp_path / "own.yaml").write_text(f"name: own\nsweep: {{space: {space}, num_trials: 5, pruning: null}}\n")
    _, deployment = yaml.safe_load(render(tmp_path))["deployments"]
    assert deployment["entrypoint"] == "flows/sweep.py:sweep"
    _validate(deployment)


def _validate(deployment):
    schema = parameter_schema(FLOWS[deployment["entrypoint"]]).model_dump_for_openapi()
    # As the server calls it: what a deployment leaves out may come with its runs.
    validate(deployment["parameters"], schema, raise_on_error=True, ignore_required=True)
