"""What prefect.yaml gives each deployment is what Prefect's server takes: its own check of it, by the flow's schema."""

from pathlib import Path

import pytest
import yaml
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate

from flows.deployments import render
from flows.retraining import retraining
from flows.training import training

CONF = Path(__file__).parents[2] / "conf"
DEPLOYMENTS = yaml.safe_load(render(CONF))["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: deployment["name"])
def test_server_takes_the_parameters(deployment):
    flow = {"flows/training.py:training": training, "flows/retraining.py:retraining": retraining}
    schema = parameter_schema(flow[deployment["entrypoint"]]).model_dump_for_openapi()
    # As the server calls it: what a deployment leaves out may come with its runs.
    validate(deployment["parameters"], schema, raise_on_error=True, ignore_required=True)
