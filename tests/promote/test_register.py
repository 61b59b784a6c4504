"""Registration: what is in the registry is the exported model, whole, once, and loads without us."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.models import Model

from tasks.errors import ConfigError, TrackingError
from tasks.evaluate.inputs import read_inputs
from tasks.evaluate.report import INPUTS
from tasks.export.manifest import EXPORT
from tasks.files import digest_file
from tasks.promote.record import RegisteredModel
from tasks.promote.register import register
from tasks.promote.registered import DIGEST_TAG
from tasks.promote.warm_start import settle_warm_start
from tasks.runs import Run
from tasks.starting_weights import AliasWeights, FileWeights
from tasks.track.client import tracking_uri
from tasks.track.tracker import tracked
from tasks.train.checkpoint import VARIABLES

# What a user of the registry does: MLflow and TensorFlow, nothing of ours.
STRANGER = """
import json, sys
sys.modules["tasks"] = sys.modules["flows"] = None  # an import of them fails
import mlflow, numpy as np, tensorflow as tf
from mlflow.models import convert_input_example_to_serving_input, validate_serving_input
uri, saved_model, images = sys.argv[1:]
images = np.load(images)
model = mlflow.pyfunc.load_model(uri)
found = model.predict({"image": images})
wanted = tf.saved_model.load(saved_model).signatures["serving_default"](image=tf.constant(images))
assert found.keys() == wanted.keys(), found
np.testing.assert_array_equal(found["probabilities"], wanted["probabilities"])
np.testing.assert_array_equal(found["class"], wanted["class"])
assert found["label"].tolist() == [label.decode() for label in wanted["label"].numpy()]
served = validate_serving_input(uri, convert_input_example_to_serving_input(model.input_example))
print(json.dumps({name: np.shape(value) for name, value in served.items()}))
"""


@pytest.fixture(scope="module")
def registered(trained_run: Any, report: Any, exported: Any) -> RegisteredModel:
    """The registered model of `trained_run`."""
    run = trained_run.run
    with tracked(run) as tracker:
        return register(run, tracker.mlflow_run_id(), trained_run.shards, report, exported)


def test_a_model_is_registered_once(registered: RegisteredModel, trained_run: Any, report: Any, exported: Any) -> None:
    run = trained_run.run
    again = register(run, run.state().mlflow_run_id, trained_run.shards, report, exported)
    assert again == registered
    assert registered == RegisteredModel(name="digits", version=1, uri="models:/digits/1", digest=exported.digest)
    assert len(_client(run).search_model_versions("name = 'digits'")) == 1


def test_an_alias_leads_to_the_weights_of_the_version_that_it_names(
    registered: RegisteredModel, trained_run: Any, digits: Any
) -> None:
    run, best = trained_run.run, trained_run.result.best_checkpoint
    client = _client(run)
    client.set_registered_model_alias("digits", "champion", str(registered.version))
    config = digits.run().config
    named = config.model.model_copy(update={"warm_start": AliasWeights(alias="digits@champion", exclude=("^dense",))})
    config = config.model_copy(update={"model": named})
    found = settle_warm_start(config, digits.workspace).model.warm_start
    assert found == FileWeights(
        file=str(best / VARIABLES),
        sha256=digest_file(best / VARIABLES),
        origin=f"digits@champion, version 1, of run {run.id}, step {int(best.name)}",
        exclude=("^dense",),
    )
    client.set_model_version_tag("digits", str(registered.version), DIGEST_TAG, "another")
    with pytest.raises(ConfigError, match=r"version 1, is not what its run .* has now"):
        settle_warm_start(config, digits.workspace)
    client.set_model_version_tag("digits", str(registered.version), DIGEST_TAG, registered.digest)
    client.delete_registered_model_alias("digits", "champion")


def test_the_version_leads_back_to_run_data_and_figures(
    registered: RegisteredModel, trained_run: Any, report: Any
) -> None:
    client, run = _client(trained_run.run), trained_run.run
    version = client.get_model_version("digits", str(registered.version))
    assert version.run_id == run.state().mlflow_run_id
    assert version.tags == {
        "millstream.digest": registered.digest,
        "millstream.manifest_digest": digest_file(trained_run.run.model / EXPORT),
        "millstream.run_id": run.id,
        "millstream.data_digest": trained_run.shards.data_digest,
        "eval.test.accuracy": f"{report.figures['accuracy']:.6g}",
    }
    assert version.description.startswith(f"# digits\n\naccuracy **{report.figures['accuracy']:.4f}**")
    for line in (f"- data digest: {trained_run.shards.data_digest}", 'mlflow.pyfunc.load_model("models:/digits/1")'):
        assert line in version.description
    found = client.get_run(version.run_id)
    assert found.info.status == "FINISHED"
    [output] = found.outputs.model_outputs
    model = client.get_logged_model(output.model_id)
    assert (model.name, str(model.status), version.source) == ("digits", "READY", f"models:/{output.model_id}")
    assert model.experiment_id == found.info.experiment_id
    assert Path(model.artifact_location).is_relative_to(run.workspace / "mlartifacts")


def test_signature_example_and_requirements_are_there(
    registered: RegisteredModel, trained_run: Any, report: Any
) -> None:
    location = Path(_client(trained_run.run).get_model_version_download_uri("digits", str(registered.version)))
    model = Model.load(str(location))
    assert [(spec.name, spec.type, spec.shape) for spec in model.signature.inputs] == [
        ("image", np.dtype("uint8"), (-1, 8, 8, 1))
    ]
    assert [(spec.name, spec.type, spec.shape) for spec in model.signature.outputs] == [
        ("probabilities", np.dtype("float32"), (-1, 10)),
        ("class", np.dtype("int64"), (-1,)),
        ("label", np.dtype("str"), (-1,)),
    ]
    example = json.loads((location / "input_example.json").read_text())
    np.testing.assert_array_equal(example["image"], read_inputs(report.directory / INPUTS)["image"])
    names = [line.partition("==")[0] for line in (location / "requirements.txt").read_text().splitlines()]
    assert names == ["mlflow", "numpy", "tensorflow"]


def test_it_loads_without_us_and_equals_the_saved_model(
    registered: RegisteredModel, trained_run: Any, report: Any, exported: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", read_inputs(report.directory / INPUTS)["image"])
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, registered.uri, str(exported.directory), str(tmp_path / "images.npy")],
        env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri(trained_run.run)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"probabilities": [4, 10], "label": [4], "class": [4]}


def test_a_server_that_is_gone_is_an_error_that_can_be_mended(trained_run: Any, report: Any, exported: Any) -> None:
    run = trained_run.copy("no-server", "tracking.uri=http://127.0.0.1:9").run
    with pytest.raises(TrackingError, match=r"run no-server: the model in .* is not registered: http://127.0.0.1:9 "):
        register(run, "any", trained_run.shards, report, exported)


def _client(run: Run) -> MlflowClient:
    return MlflowClient(tracking_uri(run))
