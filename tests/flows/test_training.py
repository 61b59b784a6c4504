"""The main job: one command, from raw data to a tracked and registered model."""

import io
import json
import re
from base64 import b64decode
from importlib.metadata import version
from pathlib import Path

import mlflow
import pytest
from PIL import Image
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import summary
from flows.training import Outcome
from tasks.runs import list_runs

DIGITS = Path(__file__).parents[2] / "conf" / "digits.yaml"
PERF = (
    "examples_per_second",
    *("step_seconds_p50", "step_seconds_p95"),
    *("input_wait_fraction", "input_wait_seconds_p50", "input_wait_seconds_p95"),
)


@pytest.fixture(scope="module")
def mlflow_run(finished):
    client = mlflow.MlflowClient(finished["tracking_uri"])
    runs = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    [found] = [run for run in runs if run.data.tags["millstream.run_id"] == finished["run_id"]]
    return found


def test_it_learns_the_digits(finished):
    assert finished["report"]["split"] == "test"
    assert finished["report"]["num_examples"] == 180
    assert finished["report"]["figures"]["accuracy"] >= 0.96
    assert finished["trained"]["num_replicas"] == 2
    assert finished["trained"]["num_steps"] == 5 * 23


def test_the_run_and_its_directories_are_finished(millstream, finished):
    (state,) = [state for state in list_runs(millstream.workspace) if state.id == finished["run_id"]]
    assert state.status == "finished"
    assert (Path(finished["exported"]["directory"]) / "COMPLETED").is_file()
    assert finished["exported"]["largest_difference"] <= 1e-5


def test_one_mlflow_run_holds_params_metrics_and_tags(finished, mlflow_run):
    assert mlflow_run.info.status == "FINISHED"
    assert mlflow_run.data.params["train.total"] == "5 epochs"
    assert mlflow_run.data.params["feed.global_batch_size"] == "64"
    metrics = mlflow_run.data.metrics
    assert {"loss", "accuracy", "val_loss", "val_accuracy", *(f"perf/{name}" for name in PERF)} <= metrics.keys()
    assert metrics["eval/accuracy"] == finished["report"]["figures"]["accuracy"]
    for name in PERF:
        assert metrics[f"perf/{name}"] == finished["trained"][name]
    assert mlflow_run.data.tags["prefect.flow_run_id"]
    advice = finished["trained"]["input_advice"]
    assert (advice is None) == (metrics["perf/input_wait_fraction"] <= 0.05)
    assert mlflow_run.data.tags["millstream.input_advice"] == (advice or "none")
    assert mlflow_run.data.tags["version.tensorflow"] == version("tensorflow")


def test_every_epoch_is_one_point_of_each_curve(finished, mlflow_run):
    client = mlflow.MlflowClient(finished["tracking_uri"])
    for metric in ("loss", "val_accuracy"):
        steps = [point.step for point in client.get_metric_history(mlflow_run.info.run_id, metric)]
        assert steps == [23, 46, 69, 92, 115]


def test_the_mlflow_run_holds_dataset_plots_config_and_manifest(finished, mlflow_run):
    (dataset,) = mlflow_run.inputs.dataset_inputs
    assert dataset.dataset.name == "digits"
    assert dataset.dataset.digest == finished["shards"]["data_digest"]
    client = mlflow.MlflowClient(finished["tracking_uri"])
    names = {
        item.path for folder in ("", "report", "data") for item in client.list_artifacts(mlflow_run.info.run_id, folder)
    }
    report = {
        f"report/{name}" for name in ("confusion_matrix.png", "learning_curves.png", "report.html", "model_card.md")
    }
    assert {"config.yaml", "data/manifest.json"} | report <= names


def test_without_an_mlflow_server_the_summary_names_the_reports_file(finished):
    report = Path(finished["report"]["directory"]) / "report.html"
    assert report.is_file()
    assert f"report `{report}`" in summary.markdown(Outcome.model_validate(finished))


def test_the_summary_holds_the_plots_of_the_report(finished):
    report = Path(finished["report"]["directory"])
    plots = re.findall(r"!\[(.+)\]\(data:image/png;base64,(.+)\)", summary.markdown(Outcome.model_validate(finished)))
    assert [title for title, _ in plots] == ["learning curves", "calibration", "confusion matrix", "precision recall"]
    with Image.open(report / "learning_curves.png") as whole, Image.open(io.BytesIO(b64decode(plots[0][1]))) as shown:
        assert shown.size == (whole.width / 2, whole.height / 2)
    assert sum(len(image) for _, image in plots) < 200_000


def test_a_prefect_server_that_is_gone_costs_the_summary_alone(finished, monkeypatch, caplog):
    monkeypatch.setattr(summary, "MAX_TRIES", 1)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        summary.publish(Outcome.model_validate(finished), name="digits")
    assert f"the summary of run {finished['run_id']} is not shown" in caplog.text


def test_the_exported_model_is_registered(finished):
    client = mlflow.MlflowClient(finished["tracking_uri"])
    registered = client.get_model_version("digits", finished["registered"]["version"])
    assert registered.tags["millstream.digest"] == finished["exported"]["digest"]


def test_another_run_writes_no_shard_again_and_says_so(millstream, finished):
    manifest = Path(finished["shards"]["directory"]) / "manifest.json"
    before, num_runs = manifest.stat().st_mtime_ns, len(list_runs(millstream.workspace))
    printed = millstream("run", DIGITS, "train.total=1 epochs", "train.optimizer.schedule.kind=constant")
    assert "there already, nothing written" in printed.stderr
    assert manifest.stat().st_mtime_ns == before
    assert len(list_runs(millstream.workspace)) == num_runs + 1
    for words in (
        "test accuracy",
        "examples/s",
        "input wait",
        "report.html",
        "mlflow ui",
        "?workflowType=machine_learning",
    ):
        assert words in printed.stdout + printed.stderr


def test_clean_keeps_its_registered_model_and_its_best_checkpoint(millstream, finished):
    directory = millstream.workspace / "runs" / finished["run_id"]
    best = Path(finished["trained"]["best_checkpoint"])
    others = {str(path) for path in (directory / "checkpoints").iterdir() if path.name.isdigit() and path != best}

    def planned(*rules: str) -> set[str]:
        return {each["path"] for each in json.loads(millstream("clean", "--dry-run", "--json", *rules).stdout)}

    assert {path for path in planned() if finished["run_id"] in path} == others
    assert {path for path in planned("--keep-runs", "0") if finished["run_id"] in path} == {str(directory)}
