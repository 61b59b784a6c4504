"""From shards to the registry with a feature of every kind: what is served takes them as they are stored."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from mlflow.models import Model

from tasks.evaluate.inputs import read_inputs
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import INPUTS, PREDICTIONS, WORST_INPUTS
from tasks.export.manifest import SignatureInput
from tasks.track.client import open_client, tracking_uri
from tests.every_kind import LABEL_MAP, make_example
from tests.promote.conftest import Registered

# What a user of the registry does: MLflow and TensorFlow, nothing of ours; in Python, and as the server gets it.
STRANGER = """
import base64, json, sys
sys.modules["tasks"] = sys.modules["flows"] = None  # an import of them fails
import mlflow, numpy as np
from mlflow.models import validate_serving_input
model = mlflow.pyfunc.load_model(sys.argv[1])
row = json.load(sys.stdin)
found = model.predict({
    "pixels": np.array(row["pixels"], np.uint8),
    "vector": np.array(row["vector"], np.float32),
    "photo": np.array([base64.b64decode(row["photo"][0])], object),
    "comment": np.array(row["comment"]),
    "colour": np.array(row["colour"]),
    "weight_g": np.array(row["weight_g"], np.float64),
    "count": np.array(row["count"], np.int64),
    "colour_missing": np.array(row["colour_missing"], np.int64),
    "weight_g_missing": np.array(row["weight_g_missing"], np.int64),
})
served = validate_serving_input(sys.argv[1], json.dumps({"inputs": row}))
print(json.dumps({name: [np.asarray(value).tolist() for value in (found[name], served[name])] for name in found}))
"""


def test_the_manifest_names_each_argument_and_its_feature(every_kind: Registered) -> None:
    def argument(feature: str, kind: str, dtype: str, shape: tuple[int, ...] = ()) -> SignatureInput:
        return SignatureInput(feature=feature, kind=kind, shape=shape, dtype=dtype)

    assert every_kind.exported.inputs == {
        "pixels": argument("pixels", "tensor", "uint8", (2, 2, 1)),
        "vector": argument("vector", "tensor", "float32", (3,)),
        "photo": argument("photo", "image", "string"),
        "comment": argument("comment", "text", "string"),
        "colour": argument("colour", "category", "string"),
        "weight_g": argument("weight (g)", "number", "float64"),
        "count": argument("count", "number", "int64"),
        "colour_missing": argument("colour_missing", "missing", "int64"),
        "weight_g_missing": argument("weight (g)_missing", "missing", "int64"),
    }


def test_both_signatures_give_what_was_evaluated(every_kind: Registered) -> None:
    # The parity check of the export has compared the two on all examples, alone and in batches.
    assert every_kind.exported.num_parity_examples == 11
    assert 0 < every_kind.exported.largest_difference <= 1e-5


def test_evaluation_keeps_the_first_examples_as_they_are_stored(every_kind: Registered) -> None:
    kept = read_inputs(every_kind.report.directory / INPUTS)
    for row in range(4):
        example = make_example(160 + row)
        for name, values in kept.items():
            assert np.array_equal(values[row], example[name]), name


def test_evaluation_tells_of_columns_of_every_kind_and_shows_the_worst_inputs(every_kind: Registered) -> None:
    report, examples = every_kind.report, {id: make_example(id) for id in range(160, 171)}
    found = {(each.column, each.value): each for each in report.slices}
    colours = {"blue": 2, "grün": 2, "never seen": 2, "red": 3, "(missing)": 2}
    assert {value: each.num_examples for (column, value), each in found.items() if column == "colour"} == colours
    assert [value for (column, value), each in found.items() if column == "colour" and not each.is_small] == ["red"]
    assert {value: each.num_examples for (column, value), each in found.items() if column == "count"} == {
        "0": 2,
        **{str(count): 1 for count in range(1, 10)},
    }
    weights = {value: each.num_examples for (column, value), each in found.items() if column == "weight (g)"}
    assert (weights.pop("(missing)"), sum(weights.values())) == (2, 9)

    assert (report.num_leaked, report.leaked) == (0, ())
    inputs = json.loads((report.directory / WORST_INPUTS).read_text())
    assert len(report.worst) == len(inputs) == 11
    for each in report.worst:
        example = examples[each.id]
        assert each.target == LABEL_MAP[example["label"]]
        assert (report.directory / each.images["photo"]).read_bytes() == example["photo"]
        assert inputs[str(each.id)]["comment"] == example["comment"].decode()
        assert inputs[str(each.id)]["weight (g)"] == (None if each.id % 4 == 3 else example["weight (g)"])


def test_the_signature_of_the_registered_model_is_what_is_sent(every_kind: Registered) -> None:
    client = open_client(tracking_uri(every_kind.run))
    location = client.get_model_version_download_uri("every_kind", str(every_kind.model.version))
    signature = Model.load(location).signature
    assert {spec.name: (spec.type, spec.shape) for spec in signature.inputs} == {
        "pixels": (np.dtype("uint8"), (-1, 2, 2, 1)),
        "vector": (np.dtype("float32"), (-1, 3)),
        "photo": (np.dtype("object"), (-1,)),
        "comment": (np.dtype("str"), (-1,)),
        "colour": (np.dtype("str"), (-1,)),
        "weight_g": (np.dtype("float64"), (-1,)),
        "count": (np.dtype("int64"), (-1,)),
        "colour_missing": (np.dtype("int64"), (-1,)),
        "weight_g_missing": (np.dtype("int64"), (-1,)),
    }
    example = json.loads((Path(location) / "input_example.json").read_text())
    assert base64.b64decode(example["photo"][0]) == make_example(160)["photo"]
    assert example["comment"][1].encode() == make_example(161)["comment"]


def test_a_stranger_is_answered_as_the_evaluation_was(every_kind: Registered) -> None:
    example = make_example(170)
    row = {name: example[input.feature] for name, input in every_kind.exported.inputs.items()}
    plain = {
        name: value.decode() if isinstance(value, bytes) and name != "photo" else value for name, value in row.items()
    }
    plain["photo"] = base64.b64encode(row["photo"]).decode()
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, every_kind.model.uri],
        input=json.dumps({name: [np.asarray(value).tolist()] for name, value in plain.items()}),
        env={**os.environ, "MLFLOW_TRACKING_URI": tracking_uri(every_kind.run)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    reported = read_predictions(every_kind.report.directory / PREDICTIONS)
    [expected] = reported.predictions[reported.ids == 170]
    for probabilities in answers["probabilities"]:
        np.testing.assert_allclose(probabilities, [expected], rtol=0, atol=1e-5)
    assert answers["label"][0] == answers["label"][1] == [("no", "yes", "später")[expected.argmax()]]


def test_tensorflow_alone_loads_the_model_with_its_vocabulary(every_kind: Registered) -> None:
    signature = tf.saved_model.load(str(every_kind.exported.directory)).signatures["serving_default"]
    example = make_example(0)
    row = {name: example[input.feature] for name, input in every_kind.exported.inputs.items()}

    def ask(colour: str, missing: int) -> list[float]:
        asked = row | {"colour": colour.encode(), "colour_missing": missing}
        sent = {name: tf.constant([asked[name]], input.dtype) for name, input in every_kind.exported.inputs.items()}
        return signature(**sent)["probabilities"].numpy()[0].tolist()

    assert ask("grün", 0) != ask("red", 0) != ask("never seen", 0)
    assert ask("never seen", 0) == ask("nor this", 0)
    assert ask("grün", 1) == ask("", 1)
