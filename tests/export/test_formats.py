"""Formats: what lies beside the SavedModel computes the same, loads in safe mode, and is refused where it cannot."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tasks.config import ModelConfig, build_config
from tasks.errors import ConfigError, ExportError
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tasks.export import keras_file, onnx_file
from tasks.export.answer import OneClass
from tasks.export.manifest import ExportManifest
from tasks.export.warmup import WARMUP
from tasks.files import read_receipts, verify
from tasks.formats import ExportConfig, check_formats
from tasks.models.patches import make_invariant

SETTINGS = ("export.formats=[savedmodel, keras, onnx]", "export.warmup_requests=2", "export.num_timed_calls=3")
ANSWER = OneClass(("no", "yes"))
# Keras, of its own variables, as it saves them.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")


@pytest.fixture(scope="module")
def in_every_format(trained_run: Any, report: Any, exported: ExportManifest) -> ExportManifest:
    """A copy of `trained_run` that had a SavedModel alone, exported anew in all formats."""
    trained = trained_run.copy("every-format", *SETTINGS)
    shutil.copytree(exported.directory, trained.run.model)
    manifest: ExportManifest = trained.export(trained.take(report))
    return manifest


@pytest.fixture(scope="module")
def seen(report: Any, trained_run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images of the test split, and the probabilities that the evaluation gave."""
    manifest = trained_run.shards.manifest()
    files = [str(trained_run.shards.directory / shard.file) for shard in manifest.splits["test"].shards]
    records = tf.stack(list(tf.data.TFRecordDataset(files)))
    stored = tf.io.parse_example(records, {"image": tf.io.FixedLenFeature([], tf.string)})["image"]
    images = tf.reshape(tf.io.decode_raw(stored, tf.uint8), (-1, 8, 8, 1)).numpy()
    return images, read_predictions(report.directory / PREDICTIONS).predictions


def test_what_a_model_is_exported_as_is_made_anew_when_it_is_to_be_more(in_every_format: ExportManifest) -> None:
    directory = in_every_format.directory
    assert {str(WARMUP), "model.keras", "model.onnx", "saved_model.pb"} <= set(read_receipts(directory))
    verify(directory)
    assert in_every_format.formats == ("savedmodel", "keras", "onnx")
    assert in_every_format.num_warmup_requests == 2
    assert 0 < in_every_format.largest_difference <= 1e-5


def test_the_keras_file_loads_in_safe_mode_in_float32_and_gives_what_was_trained(
    in_every_format: ExportManifest, seen: Any
) -> None:
    images, probabilities = seen
    model = keras.saving.load_model(in_every_format.directory / "model.keras", safe_mode=True)
    assert {layer.dtype_policy.name for layer in model.layers} == {"float32"}
    assert not model.compiled
    found = keras.ops.softmax(model({"image": images}))
    np.testing.assert_allclose(found, probabilities, rtol=0, atol=1e-5)


def test_the_onnx_file_takes_any_number_of_examples_and_gives_what_was_trained(
    in_every_format: ExportManifest, seen: Any
) -> None:
    images, probabilities = seen
    session = onnxruntime.InferenceSession(in_every_format.directory / "model.onnx")
    [image], [output] = session.get_inputs(), session.get_outputs()
    assert (image.name, image.type, image.shape) == ("image", "tensor(uint8)", ["batch", 8, 8, 1])
    assert (output.name, output.type, output.shape) == ("probabilities", "tensor(float)", ["batch", 10])
    assert json.loads(session.get_modelmeta().custom_metadata_map["label_map"]) == list("0123456789")
    for count in (1, len(images)):
        [found] = session.run(None, {"image": images[:count]})
        np.testing.assert_allclose(found, probabilities[:count], rtol=0, atol=1e-5)


def test_warm_up_requests_are_real_examples_for_each_signature(in_every_format: ExportManifest, seen: Any) -> None:
    _, probabilities = seen
    model = tf.saved_model.load(str(in_every_format.directory))
    asked = []
    for record in tf.data.TFRecordDataset(str(in_every_format.directory / WARMUP)):
        request = PredictionLog.FromString(record.numpy()).predict_log.request
        assert request.model_spec.name == "digits"
        signature = request.model_spec.signature_name
        found = model.signatures[signature](**{key: tf.make_ndarray(value) for key, value in request.inputs.items()})
        row = asked.count(signature)
        np.testing.assert_allclose(found["probabilities"], probabilities[row : row + 1], rtol=0, atol=1e-5)
        asked.append(signature)
    assert asked == [name for name in in_every_format.signatures for _ in range(2)]


class Unregistered(keras.layers.Layer):
    """A layer that Keras cannot find again, of an operation that ONNX does not have."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.math.lgamma(tf.abs(inputs) + 1)


def test_a_model_that_a_format_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    inputs = {"x": keras.Input((3,), name="x")}
    model = keras.Model(inputs, keras.layers.Dense(2)(Unregistered()(inputs["x"])))
    keras_file.write(model, tmp_path / "model.keras")
    with pytest.raises(ExportError, match=r"keras: .* does not load as a stranger .*'Unregistered'.*; give its own"):
        keras_file.load(tmp_path / "model.keras", ModelConfig(), ANSWER)
    with pytest.raises(ExportError, match=r"onnx: the model cannot be written .*Lgamma.*; leave onnx out"):
        onnx_file.write(model, ANSWER, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_gelu_constants_of_a_layer_and_an_input_that_is_not_used_become_onnx(tmp_path: Path) -> None:
    inputs = {name: keras.Input((3,), name=name) for name in ("unused", "x")}
    normalised = keras.layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[4.0, 1.0, 0.25])(inputs["x"])
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dense(4, activation="gelu")(normalised)))
    onnx_file.write(model, ANSWER, tmp_path / "model.onnx")
    batch = {name: tf.random.stateless_normal((5, 3), (1, 2)) for name in inputs}
    found = onnx_file.load(tmp_path / "model.onnx", ANSWER)(**batch)["probabilities"]
    np.testing.assert_allclose(found, tf.nn.softmax(model(batch)), rtol=0, atol=1e-6)


def test_a_penalty_on_activities_is_written_as_keras_own(tmp_path: Path) -> None:
    inputs = {"x": keras.Input((3,), name="x")}
    model = keras.Model(inputs, keras.layers.Dense(2, activity_regularizer="l2")(inputs["x"]))
    make_invariant(model)
    keras_file.write(model, tmp_path / "model.keras")
    found = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert type(found.layers[-1].activity_regularizer) is keras.regularizers.L2


def test_what_is_not_installed_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tf2onnx", "tensorflow_serving"):
        monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    check_formats(ExportConfig(formats=("savedmodel", "keras")))
    with pytest.raises(ConfigError, match=r"export\.formats: needs tf2onnx, .* pip install 'millstream\[onnx\]'"):
        check_formats(ExportConfig(formats=("savedmodel", "onnx")))
    with pytest.raises(
        ConfigError, match=r"export\.warmup_requests: needs tensorflow_serving, .*'millstream\[serve\]'"
    ):
        check_formats(ExportConfig(warmup_requests=1))


@pytest.mark.parametrize(
    ("formats", "rule"), [("[onnx]", "must have savedmodel"), ("[savedmodel, savedmodel]", "twice")]
)
def test_formats_that_make_no_sense_are_refused(formats: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"export\.formats.*{rule}"):
        build_config({"name": "any"}, [f"export.formats={formats}"])
