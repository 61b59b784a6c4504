"""The names in tasks/track/README.md are those that a whole run has in MLflow, and no others."""

import re
from pathlib import Path
from typing import Any

import mlflow
import pytest

from tasks.target import FIGURES

README = Path(__file__).parents[2] / "tasks" / "track" / "README.md"
# Of what the main job is not: deployed, with a UI, resumed with another config, of a checkout, judged otherwise, in
# mixed precision, stopped early, on GPUs, with another kind of target, with slices, held against a champion,
# repeated.
OTHER_FIGURES = {figure for figures in FIGURES.values() for figure in figures} - set(FIGURES["multiclass"])
OPTIONAL = {
    "metric": {
        *("best_val_accuracy", "best_val_loss", "loss_scale", "overflows", "perf/mfu"),
        *("subset_accuracy", "mae", "eval/slices/<column>/<value>/<figure>", "champion/<figure>", "champion/p_value"),
        *("drift/<feature>/psi", "drift/<feature>/js", "drift/max_psi"),
        *(f"{prefix}{figure}" for prefix in ("val_", "best_val_", "eval/") for figure in OTHER_FIGURES),
    },
    "tag": {
        *("git.dirty", "mlflow.source.git.commit", "changed.<param>"),
        *("prefect.deployment", "prefect.flow_run_url", "millstream.stopped_early", "millstream.lost_devices"),
        *("millstream.gate", "millstream.gate_reasons", "millstream.reproduces"),
    },
}
OF_MLFLOW = {"mlflow.source.name", "mlflow.runName", "mlflow.user", "mlflow.note.content"}


@pytest.fixture(scope="module")
def mlflow_run(finished: dict[str, Any]) -> Any:
    client = mlflow.MlflowClient(finished["tracking_uri"])
    (experiment,) = client.search_experiments(filter_string="name = 'digits'")
    (found,) = client.search_runs(
        [experiment.experiment_id], f"tags.`millstream.run_id` = '{finished['run_id']}'", max_results=1
    )
    return found


def test_every_metric_is_in_the_table(mlflow_run: Any) -> None:
    assert _without_optional("metric", mlflow_run.data.metrics) == _without_optional("metric", _table("metric"))


def test_every_tag_is_in_the_table(mlflow_run: Any) -> None:
    tags = {tag for tag in mlflow_run.data.tags if tag not in OF_MLFLOW and not tag.startswith("mlflow.log-model")}
    assert _without_optional("tag", tags) == _without_optional("tag", _table("tag"))


def test_what_is_optional_is_in_the_table_too() -> None:
    for kind, names in OPTIONAL.items():
        assert names <= _table(kind)


def test_runs_can_be_grouped_by_data_code_replicas_and_batch(mlflow_run: Any, finished: dict[str, Any]) -> None:
    tags = mlflow_run.data.tags
    assert tags["millstream.data_digest"] == finished["shards"]["data_digest"]
    assert re.fullmatch("[0-9a-f]{64}", tags["millstream.code_digest"])
    assert (tags["millstream.num_replicas"], tags["millstream.global_batch_size"]) == ("2", "64")


def _table(kind: str) -> set[str]:
    """Returns the names in the first column of the table of `kind`."""
    rows = README.read_text().partition(f"| {kind} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def _without_optional(kind: str, names: Any) -> set[str]:
    return set(names) - OPTIONAL[kind]
