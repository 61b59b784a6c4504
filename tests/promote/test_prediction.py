"""Prediction: files are answered as the evaluation was, by a model whose files are those that were registered."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.errors import ConfigError, DataError
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tasks.export.manifest import EXPORT, SignatureInput
from tasks.files import write_atomic
from tasks.promote.fetched import fetch_model
from tasks.promote.predict import predict
from tasks.promote.raw_inputs import Inputs, read_examples
from tasks.track.client import open_client, tracking_uri
from tests.every_kind import LABEL_MAP, make_example
from tests.promote.conftest import Registered


def _input(kind: str, dtype: str, *shape: int, feature: str = "x") -> SignatureInput:
    return SignatureInput(feature=feature, kind=kind, shape=shape, dtype=dtype)


IMAGE, TEXT = {"x": _input("image", "string")}, {"x": _input("text", "string")}
VECTOR = {"x": _input("tensor", "uint8", 2)}
ROW = {
    "colour": _input("category", "string", feature="colour"),
    "weight_g": _input("number", "float64", feature="weight (g)"),
    "count": _input("number", "int64", feature="count"),
    "colour_missing": _input("missing", "int64", feature="colour_missing"),
}


def _read(path: Path, content: bytes | str | list[Any] | dict[str, Any], inputs: Inputs) -> list[dict[str, Any]]:
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    return [example.values for example in read_examples(path, inputs)]


def test_a_file_is_the_one_input_of_a_model(tmp_path: Path) -> None:
    assert _read(tmp_path / "a.jpg", b"\xff\xd8", IMAGE) == [{"x": b"\xff\xd8"}]
    assert _read(tmp_path / "a.txt", "größer\n", TEXT) == [{"x": "größer\n".encode()}]
    np.save(tmp_path / "a.npy", np.array([1, 2], np.uint8))
    [example] = read_examples(tmp_path / "a.npy", VECTOR)
    assert (example.values["x"].tolist(), example.values["x"].dtype) == ([1, 2], np.uint8)


def test_rows_are_read_by_input_or_column_and_nothing_known_is_missing(tmp_path: Path) -> None:
    wanted = [
        {"colour": b"red", "colour_missing": 0, "weight_g": 0.5, "count": 3},
        {"colour": b"", "colour_missing": 1, "weight_g": 2, "count": -1},
    ]
    rows: list[Any] = [{"colour": "red", "weight (g)": 0.5, "count": 3}, {"colour": None, "weight_g": 2, "count": -1}]
    assert _read(tmp_path / "a.json", rows, ROW) == wanted
    assert _read(tmp_path / "a.csv", "count,colour,cut,weight (g)\n3,red,x,0.5\n-1,,y,2\n", ROW) == wanted
    examples = list(read_examples(tmp_path / "a.csv", ROW))
    assert [(example.source, example.left_out) for example in examples] == [
        (f"{tmp_path}/a.csv:1", ("cut",)),
        (f"{tmp_path}/a.csv:2", ("cut",)),
    ]
    assert _read(tmp_path / "b.json", {"x": base64.b64encode(b"\xff").decode()}, IMAGE) == [{"x": b"\xff"}]


@pytest.mark.parametrize(
    ("name", "content", "inputs", "message"),
    [
        ("a.json", "{", ROW, r"a\.json: is no JSON"),
        ("a.json", [1], ROW, "must be an object, or a list of objects"),
        ("a.json", {"colour": "red", "count": 1}, ROW, r"lacks weight_g \('weight \(g\)'\); the model takes colour,"),
        ("a.json", {"colour": 7, "weight_g": 1, "count": 1}, ROW, "colour is 7, where a text is due"),
        ("a.json", {"colour": "", "weight_g": 1, "count": 1.5}, ROW, "count is 1.5, where int64 is due"),
        ("a.json", {"colour": "", "weight_g": True, "count": 1}, ROW, "is True, where float64 is due"),
        ("a.json", '{"colour": "", "weight_g": NaN, "count": 1}', ROW, "is nan, where float64 is due"),
        ("a.json", {"colour": "", "weight_g": None, "count": 1}, ROW, "is missing, which the model has not learned"),
        ("a.json", {"x": [1, 256]}, VECTOR, r"x is \[1, 256\], where uint8 \[2\] is due"),
        ("a.json", {"x": [[1], [1, 2]]}, VECTOR, r"where uint8 \[2\] is due"),
        ("a.json", {"x": "no!"}, IMAGE, "x is no base64"),
        ("a.csv", "colour,weight (g),count\nred,heavy,1\n", ROW, "is 'heavy', where float64 is due"),
        ("a.csv", "colour,weight (g),count\nred,1\n", ROW, r"a\.csv:1: has not as many values"),
        ("a.jpg", b"", ROW, "takes colour, weight_g, count, colour_missing; give them as a row"),
        ("a.png", b"", VECTOR, r"takes x as uint8 \[2\]; give it as \.npy or in \.json"),
        ("a.npy", b"no", VECTOR, r"is no \.npy"),
        ("a.txt", b"\xff", TEXT, "is not in utf-8"),
    ],
)
def test_what_is_no_example_is_refused_by_name(
    tmp_path: Path, name: str, content: Any, inputs: Inputs, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _read(tmp_path / name, content, inputs)


def test_a_registered_model_answers_rows_as_the_evaluation_did(every_kind: Registered, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([_row(id) for id in range(160, 171)]))
    found = predict("every_kind", [rows], every_kind.run.workspace)
    assert (found.model, found.notes) == (every_kind.model, ())
    reported = read_predictions(every_kind.report.directory / PREDICTIONS)
    due = dict(zip(reported.ids.tolist(), reported.predictions, strict=True))
    for row, answer in enumerate(found.predictions):
        wanted = due[160 + row]
        np.testing.assert_allclose([answer.outputs[name] for name in LABEL_MAP], wanted, rtol=0, atol=1e-5)
        assert (answer.source, answer.label) == (f"{rows}:{row + 1}", LABEL_MAP[wanted.argmax()])
        assert answer.probability == max(answer.outputs.values())

    rows.write_text(json.dumps(_row(160) | {"photo": base64.b64encode(b"no image").decode()}))
    with pytest.raises(DataError, match=r"rows\.json: the model does not take it \(Unknown image file format.+\)$"):
        predict("every_kind/1", [rows], every_kind.run.workspace)


def test_a_model_is_found_by_name_version_and_alias_or_those_that_are_there_are_named(
    every_kind: Registered, tmp_path: Path
) -> None:
    uri = tracking_uri(every_kind.run)
    open_client(uri).set_registered_model_alias("every_kind", "champion", "1")
    for reference in ("every_kind", "every_kind/1", "every_kind@champion"):
        model, exported = fetch_model(reference, uri, tmp_path / reference.replace("/", "-"))
        assert model == every_kind.model
        assert exported.directory.is_relative_to(tmp_path)
    for reference, message in {
        "another": "has no such model; it has every_kind$",
        "every_kind/2": "has no such model; it has every_kind/1, every_kind@champion$",
        "every_kind@other": "has no such model; it has every_kind/1, every_kind@champion$",
        "every_kind/": "must be NAME, NAME@alias or NAME/version",
    }.items():
        with pytest.raises(ConfigError, match=message):
            fetch_model(reference, uri, tmp_path)
    with pytest.raises(ConfigError, match="nothing is registered yet"):
        fetch_model("every_kind", f"sqlite:///{tmp_path}/none.db", tmp_path)
    assert not (tmp_path / "none.db").exists()


def test_a_model_of_which_a_file_is_another_is_not_loaded(every_kind: Registered, tmp_path: Path) -> None:
    uri = tracking_uri(every_kind.run)
    location = Path(open_client(uri).get_model_version_download_uri("every_kind", "1"))
    [file] = location.glob("artifacts/*/saved_model.pb")
    whole = file.read_bytes()
    for change in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100]):
        write_atomic(file, change)
        with pytest.raises(DataError, match=r"models:/every_kind/1: its files are not those that were registered"):
            fetch_model("every_kind", uri, tmp_path / str(len(change)))
    write_atomic(file, whole)
    manifest = file.with_name(EXPORT)
    told = manifest.read_bytes()
    write_atomic(manifest, told.replace(b'"label_map"', b'"label_map" ', 1))
    with pytest.raises(DataError, match="not those that were registered"):
        fetch_model("every_kind", uri, tmp_path / "told")
    write_atomic(manifest, told)
    beside = file.with_name("more.pb")
    beside.write_bytes(b"")
    with pytest.raises(DataError, match="not those that were registered"):
        fetch_model("every_kind", uri, tmp_path / "more")
    beside.unlink()


def _row(id: int) -> dict[str, Any]:
    """Returns an example as a user has it: null where there is no value, without the marks of such."""
    example = make_example(id)
    row = {name: np.asarray(example[name]).tolist() for name in ("pixels", "vector", "count")}
    row["weight (g)"] = None if example["weight (g)_missing"] else float(example["weight (g)"])
    row["colour"] = example["colour"].decode() or None
    row["comment"] = example["comment"].decode()
    row["photo"] = base64.b64encode(example["photo"]).decode()
    return row
