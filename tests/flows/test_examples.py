"""The configs of conf/ that need no network, each from its command to a registered model; shortened."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from PIL import Image

from tasks.prepare.manifest import QUARANTINE

pytestmark = [pytest.mark.prove, pytest.mark.timeout(600)]

CONF = Path(__file__).parents[2] / "conf"
COLOURS = {"blue": (30, 40, 220), "green": (20, 200, 40), "red": (230, 30, 20)}


def _outcome(millstream: Any, config: str, *overrides: str) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(millstream("run", CONF / config, *overrides, "--json").stdout)
    return outcome


# Always saying the most frequent class is right in 0.40 of the diamonds and in 0.09 of the names.
@pytest.mark.parametrize(
    ("config", "figure", "least", "least_examples"),
    [
        ("language_id.yaml", "accuracy", 0.5, 9000),
        ("diamonds.yaml", "accuracy", 0.6, 53940),
        ("tumours.yaml", "roc_auc", 0.9, 569),
    ],
)
def test_an_example_runs_offline_and_learns(
    millstream: Any, config: str, figure: str, least: float, least_examples: int
) -> None:
    outcome = _outcome(millstream, config, "train.total=2 epochs")
    assert sum(outcome["shards"]["num_examples"].values()) >= least_examples  # names come and go with babel
    assert outcome["report"]["split"] == "test"
    assert least < outcome["report"]["figures"][figure] < 1
    assert outcome["exported"]["largest_difference"] <= 1e-5
    assert outcome["registered"]["version"] == 1
    # Not mlflow.set_tracking_uri: that is for the rest of the process, and of the tests after this one.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", outcome["tracking_uri"])
        model = mlflow.models.get_model_info(outcome["registered"]["uri"])
    outputs = {spec.name: (spec.type.name, list(spec.shape[1:])) for spec in model.signature.outputs}
    wanted = outcome["exported"]["outputs"]
    assert outputs.keys() == wanted.keys()
    assert all(outputs[name] == (wanted[name]["dtype"], wanted[name]["shape"]) for name in outputs if name != "label")


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy JPEGs of three colours and several sizes, and a broken one."""
    folder = tmp_path_factory.mktemp("squares")
    for index in range(180):
        name = sorted(COLOURS)[index % 3]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{index}.jpg").write_bytes(_square(name, index))
    whole = _square("red", 999)
    (folder / "red" / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    return folder


def _square(name: str, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    size = (24 + seed % 3 * 8, 24 + seed % 2 * 16)
    values = np.array(COLOURS[name]) + rng.normal(0, 40, (*size, 3))
    data = io.BytesIO()
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(data, "jpeg", quality=95)
    return data.getvalue()


# TensorFlow alone: JPEGs as they are, to the probabilities.
STRANGER = """
import json, sys
from pathlib import Path
sys.modules["tasks"] = sys.modules["flows"] = None  # an import of them fails
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
images = [Path(path).read_bytes() for path in sys.argv[2:]]
print(json.dumps(model.signatures["serving_default"](image=tf.constant(images))["probabilities"].numpy().tolist()))
"""


@pytest.mark.parametrize(
    "model",
    [
        ["model.build=tasks.models.cnn:build", "model.args={width: 8}"],
        ["model.args={depth: 18, stem: small, width: 8}"],
    ],
    ids=["cnn", "resnet"],
)
def test_a_folder_of_images_is_learned_and_the_model_answers_jpegs(
    millstream: Any, squares: Path, tmp_path: Path, model: list[str]
) -> None:
    outcome = _outcome(
        millstream,
        "images.yaml",
        f"data.source.path={squares}",
        "data.source.short_side=24",
        "feed.image_size=[24, 24]",
        "feed.global_batch_size=16",
        "train.total=6 epochs",
        "train.optimizer={name: adamw, learning_rate: 0.003, schedule: {kind: constant}}",
        *model,
    )
    assert outcome["report"]["figures"]["accuracy"] > 0.9
    assert outcome["shards"]["num_bad"] == 1

    client = mlflow.MlflowClient(outcome["tracking_uri"])
    [experiment] = [found for found in client.search_experiments() if found.name == "images"]
    runs = client.search_runs([experiment.experiment_id])
    [run] = [run for run in runs if run.data.tags["millstream.run_id"] == outcome["run_id"]]
    assert run.data.metrics["data/num_bad"] == 1
    file = client.download_artifacts(run.info.run_id, f"data/{QUARANTINE}", str(tmp_path))
    [bad] = map(json.loads, Path(file).read_text().splitlines())
    assert bad["path"] == "red/broken.jpg"
    assert bad["reason"]

    fresh = [tmp_path / f"{name}.jpg" for name in sorted(COLOURS)]
    for path in fresh:
        path.write_bytes(_square(path.stem, 12345))
    command = [sys.executable, "-c", STRANGER, outcome["exported"]["directory"], *map(str, fresh)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert np.argmax(json.loads(printed), axis=1).tolist() == [0, 1, 2]
