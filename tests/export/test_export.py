"""Export: what is served computes what was trained, loads anywhere, and has no name before that is proven."""

import json
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tasks.errors import DataError, ExportError
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tasks.evaluate.stage import evaluate
from tasks.export.answer import OneClass
from tasks.export.manifest import EXPORT, ExportManifest, SignatureInput
from tasks.export.parity import check
from tasks.export.stage import export
from tasks.files import COMPLETED, digest_file, digest_json, verify
from tasks.train.stage import train

# What a user of the model does: TensorFlow and the directory, nothing of ours.
STRANGER = """
import json, sys
sys.modules["tasks"] = sys.modules["flows"] = None  # an import of them fails
import numpy as np, tensorflow as tf
directory, images, shards, answers = sys.argv[1:]
signatures = tf.saved_model.load(directory).signatures
images, records = np.load(images), list(tf.data.TFRecordDataset(json.loads(shards)))
sent = {
    "serving_default": {"image": tf.constant(images, tf.uint8)},
    "tensors": {"image": tf.constant(images, tf.uint8)},
    "serialized": {"examples": tf.stack(records)},
}
assert set(signatures) == set(sent), signatures
found = {}
for name, batch in sent.items():
    for rows, size in (("all", slice(None)), ("one", slice(1))):
        for output, value in signatures[name](**{key: value[size] for key, value in batch.items()}).items():
            found[f"{name}/{rows}/{output}"] = value.numpy()
np.savez(answers, **{name: value.astype("S9") if value.dtype == object else value for name, value in found.items()})
"""


def test_it_loads_with_tensorflow_alone_and_gives_what_was_trained(exported, report, trained_run, tmp_path):
    predictions = read_predictions(report.directory / PREDICTIONS)
    images, answers = tmp_path / "images.npy", tmp_path / "answers.npz"
    np.save(images, load_digits().images[predictions.ids][..., None])
    shards = [str(trained_run.shards.directory / s.file) for s in trained_run.shards.manifest().splits["test"].shards]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-c", STRANGER, str(exported.directory), str(images), json.dumps(shards), str(answers)],
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    found = np.load(answers, allow_pickle=False)
    for signature in exported.signatures:
        for size in ("all", "one"):
            answer = {name: found[f"{signature}/{size}/{name}"] for name in ("probabilities", "class", "label")}
            expected = predictions.predictions[: len(answer["class"])]
            assert answer["probabilities"].dtype == np.float32
            np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-5)
            assert answer["class"].dtype == np.int64
            np.testing.assert_array_equal(answer["class"], expected.argmax(axis=1))
            assert answer["label"].tolist() == [str(index).encode() for index in answer["class"]]


def test_manifest_says_what_the_directory_holds(exported, trained_run):
    directory = trained_run.run.workspace / "models" / "digits" / trained_run.run.id
    assert exported == ExportManifest.read(directory / EXPORT)
    verify(directory)
    files = [file for file in directory.rglob("*") if file.is_file() and file.name not in (COMPLETED, EXPORT)]
    assert (directory / "saved_model.pb") in files
    assert exported.directory == directory
    assert exported.digest == digest_json({str(file.relative_to(directory)): digest_file(file) for file in files})
    assert exported.size_bytes == sum(file.stat().st_size for file in files)
    assert exported.signatures == ("serving_default", "tensors", "serialized")
    assert (exported.formats, exported.num_warmup_requests) == (("savedmodel",), 0)
    assert exported.step == int(trained_run.result.best_checkpoint.name)
    assert [(latency.batch_size, latency.num_calls) for latency in exported.latencies] == [(1, 50), (64, 50)]
    assert all(0 < latency.p50_ms <= latency.p95_ms for latency in exported.latencies)
    assert exported.num_parity_examples == 180  # all there are
    assert 0 < exported.largest_difference <= 1e-5  # not bit-equal: other batches, float64 softmax in the report
    assert exported.label_map == tuple("0123456789")
    image = SignatureInput(feature="image", kind="tensor", shape=(8, 8, 1), dtype="uint8")
    assert exported.inputs == {"image": image}


def test_weights_are_written_once(exported, trained_run):
    variables = sum(file.stat().st_size for file in (exported.directory / "variables").iterdir())
    weights = 4 * trained_run.result.num_parameters
    assert weights < variables < 1.1 * weights


def test_second_export_takes_the_model_that_is_there(exported, report, trained_run):
    before = exported.directory.stat()
    assert trained_run.export(report) == exported
    assert exported.directory.stat() == before


def test_damaged_model_is_noticed_and_made_anew(trained_run, report, caplog):
    trained = trained_run.copy("damaged-model", "export.num_timed_calls=1")
    report = trained.take(report)
    directory = trained.export(report).directory
    file = directory / "variables" / "variables.data-00000-of-00001"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"variables\.data-00000-of-00001: content has changed"):
        verify(directory)
    with caplog.at_level(logging.WARNING, "millstream"):
        assert trained.export(report).directory == directory
    assert "content has changed" in caplog.text
    verify(directory)


@pytest.mark.parametrize(
    "change", [lambda bias: bias + np.arange(10, dtype=bias.dtype), lambda bias: bias * np.nan], ids=["altered", "nan"]
)
def test_model_that_is_not_the_evaluated_one_is_refused_and_leaves_nothing(trained_run, report, change, request):
    trained = trained_run.copy(f"refused-{request.node.callspec.id}")
    report = trained.take(report)
    trained.change_weights(change)
    expected = r"signature serving_default, example \d+: probability of '\d' is \S+ exported and \S+ trained, .*=1e-05"
    with pytest.raises(ExportError, match=expected):
        trained.export(report)
    models = trained.run.workspace / "models" / "digits"
    assert [path.name for path in models.glob(f"{trained.run.id}*")] == []


def test_report_of_another_checkpoint_is_refused(report, trained_run):
    other = report.model_copy(update={"checkpoint": report.checkpoint.with_name("00000001")})
    with pytest.raises(DataError, match="millstream evaluate"):
        trained_run.export(other)


def test_float64_training_is_served_in_float32(digits, workers):
    run = digits.run(
        "train.total=2 steps",
        "train.optimizer.schedule.kind=constant",
        "train.precision=float64",
        "distribute.kind=one_device",
    )
    result = train(run, digits.shards)
    exported = export(run, digits.shards, result, evaluate(run, digits.shards, result))
    assert 0 < exported.largest_difference <= 1e-5  # the check itself refuses any other type than float32
    variables = exported.directory / "variables" / "variables.data-00000-of-00001"
    assert variables.stat().st_size < 1.1 * 4 * result.num_parameters


class TestCheck:
    """The comparison of one answer, without a model."""

    trained = np.array([[0.25, 0.75], [0.5, 0.5], [0.875, 0.125]])
    ids = np.array([7, 8, 9])

    def answer(self, **changes):
        probabilities = self.trained.astype(np.float32)
        labels = np.array([b"yes", b"no", b"no"], dtype=object)
        return {"probabilities": probabilities, "class": np.array([1, 0, 0]), "label": labels, **changes}

    def check(self, **changes):
        return check(
            "signature serialized",
            self.answer(**changes),
            self.trained,
            self.ids,
            OneClass(("no", "yes")),
            tolerance=1e-3,
        )

    def test_largest_difference_is_returned(self):
        probabilities = self.trained.astype(np.float32)
        probabilities[2, 1] += 2**-11
        assert self.check() == 0
        assert self.check(probabilities=probabilities) == 2**-11

    def test_difference_over_the_tolerance_is_refused(self):
        probabilities = self.trained.astype(np.float32)
        probabilities[2, 1] += 2**-9
        expected = r"signature serialized, example 9: probability of 'yes' is 0.126953125 exported and 0.125 trained"
        with pytest.raises(ExportError, match=expected):
            self.check(probabilities=probabilities)

    def test_nan_is_refused_beside_larger_differences(self):
        probabilities = np.array([[0.75, 0.25], [np.nan, 0.5], [0, 1]], np.float32)
        with pytest.raises(ExportError, match=r"example 8: probability of 'no' is nan exported"):
            self.check(probabilities=probabilities)

    def test_another_dtype_is_refused(self):
        with pytest.raises(ExportError, match=r"\[3, 2\] float64 where \[3, 2\] float32 are due"):
            self.check(probabilities=self.trained)

    def test_wrong_label_is_refused(self):
        with pytest.raises(ExportError, match=r"example 8: gives class 0 and label b'yes'"):
            self.check(label=np.array([b"yes", b"yes", b"no"], dtype=object))
