"""A reader of the user's is staged in a worker: exactly what it yields, or a sentence that says why not."""

from pathlib import Path

import numpy as np
import pytest

from tasks.config import DataConfig
from tasks.download.staging import stage, staging_digest
from tasks.errors import ConfigError, DataError
from tasks.files import read_receipts
from tasks.prepare.staged import open_staged

pytestmark = pytest.mark.usefixtures("workers")

HERE = Path(__file__).parent


def reader(function: str, splits: dict | None = None, *, folder: Path = HERE, **source) -> DataConfig:
    source = {"kind": "array", "read": f"readers_for_tests:{function}", "folder": str(folder), **source}
    return DataConfig.model_validate({"source": source, "splits": splits or {}})


def test_what_a_reader_yields_is_read_exactly(tmp_path):
    config = reader("good", {"kind": "time", "column": "day"}, text=["note"], images=["photo"])
    raw = stage(config, tmp_path)
    assert raw.digest == staging_digest(config)
    source = open_staged(config, raw.directory)
    assert source.schema.label_map == ("b9", "b10")
    kinds = {name: (one.kind, one.dtype, one.shape, one.storage) for name, one in source.schema.features.items()}
    assert kinds == {
        "age": ("number", "int64", (), "int64_list"),
        "weight": ("number", "float64", (), "raw_bytes"),
        "short": ("number", "float32", (), "float_list"),
        "grid": ("tensor", "int64", (2, 3), "raw_bytes"),
        "mask": ("tensor", "uint8", (2,), "raw_bytes"),
        "colour": ("category", "string", (), "bytes_list"),
        "note": ("text", "string", (), "bytes_list"),
        "photo": ("image", "string", (None, None, 3), "bytes_list"),
    }
    (batch,) = source.read()
    assert (list(batch.keys), batch.bad) == (["k0", "k1", "k2", "k3"], ())
    assert batch.labels.tolist() == [1, 0, 1, 0]
    assert batch.columns["age"].tolist() == [0, 1, 2, 3]
    assert batch.columns["weight"].tolist() == [0, 0.5, 1, 1.5]
    assert batch.columns["short"].tolist() == [np.float32(0.1)] * 4
    assert batch.columns["grid"].tolist() == [[[-i] * 3] * 2 for i in range(4)]
    assert batch.columns["mask"].tolist() == [[1, 1], [0, 1]] * 2
    assert batch.columns["note"][3] == "süß 3".encode()
    day = 24 * 3600 * 10**6
    assert batch.split_by.tolist() == [20454 * day + i * day for i in range(4)]
    again = stage(config, tmp_path / "other")
    assert read_receipts(again.directory) == read_receipts(raw.directory)
    assert stage(config, tmp_path).reused


def test_a_reader_may_be_written_as_tensorflow_teaches(tmp_path):
    config = reader("of_tensorflow")
    (batch,) = open_staged(config, stage(config, tmp_path).directory).read()
    assert batch.columns["x"].tolist() == [0, -1, -2, 3, 4, 5]


def test_a_reader_names_its_official_splits(tmp_path):
    skipped = {"n": 6, "skip": ["day", "photo", "key"]}
    config = reader("good", {"kind": "official", "validation": 0.5}, args=skipped)
    (batch,) = open_staged(config, stage(config, tmp_path).directory).read()
    assert list(batch.split_by) == ["train", "train", "test", "test", "train", "train"]
    assert list(batch.keys) == ["train:1", "train:2", "test:3", "test:4", "train:5", "train:6"]


def test_bad_examples_are_named_with_their_numbers_and_reasons(tmp_path):
    config = reader("spoilt", text=["text"])
    (batch,) = open_staged(config, stage(config, tmp_path).directory).read()
    assert {bad.row: (bad.column, bad.reason) for bad in batch.bad} == {
        2: ("age", "is missing"),
        3: ("grid", "has the shape (2, 3), not (2, 2)"),
        4: ("grid", "is an array of float64, not of float32"),
        5: ("age", "is None, not a whole number"),
        6: ("age", "is float, not a whole number"),
        7: ("age", "is 9223372036854775808, which int64 cannot hold"),
        8: ("weight", "is 9007199254740993, which float64 cannot hold exactly"),
        9: ("text", "has a lone surrogate at character 1, which no text may"),
        10: ("extra", "is a name that the first example has not"),
        11: ("key", "is 'k1', as of an earlier example"),
        12: (None, "is list, not a dict"),
        13: ("weight", "is nan, not a finite number"),
        14: ("grid", "holds inf, not a finite number"),
    }
    assert (list(batch.keys), batch.rows.tolist()) == (["k1", "k15"], [0, 14])
    assert (batch.columns["age"].tolist(), batch.columns["weight"].tolist()) == ([2, 7], [0.5, 3])


@pytest.mark.parametrize(
    ("function", "source", "error", "message"),
    [
        (
            "broken",
            {"args": {"number": 3}},
            DataError,
            r"failed at example 3: OSError: the tape is torn; its traceback",
        ),
        ("broken", {"args": {"number": 1}}, DataError, "failed at example 1: OSError: the tape is torn"),
        ("good", {"args": {"n": 0}}, DataError, "yields no example; check data.source.args"),
        ("good", {"args": {"m": 1}}, ConfigError, "does not take data.source.args=.*unexpected keyword argument 'm'"),
        ("bad", {}, ConfigError, "readers_for_tests has no function 'bad'"),
        ("no_list", {}, ConfigError, "returned int; it must yield examples"),
        ("good", {"target": "class"}, ConfigError, "data.source.target: example 1 has no 'class'; it has label, age"),
        ("good", {"text": ["notes"]}, ConfigError, "data.source.text: example 1 has no 'notes'"),
        ("good", {"text": ["age"]}, ConfigError, "example 1: 'age' is int, not text"),
        ("good", {}, ConfigError, "example 1: 'photo' is bytes; name it in data.source.images, or decode it to text"),
        ("first_is", {"args": {"x": None}}, ConfigError, "example 1: 'x' is None; an input is a number, text"),
        ("first_is", {"args": {"x": [1]}}, ConfigError, "example 1: 'x' is list; an input is a number, text"),
        ("first_is", {"args": {"id": 1}}, ConfigError, "an input cannot be named 'id', for shards keep"),
        ("first_is", {"args": {"#target": 1}}, ConfigError, "an input cannot be named '#target'; rename it"),
        ("first_is", {"args": {"label": 1.5}}, ConfigError, "'label' is 1.5, not a whole number"),
        (
            "first_is_an_array",
            {"args": {"dtype": "complex64"}},
            ConfigError,
            "'x' is an array of complex64; convert it",
        ),
        ("first_is_an_array", {"args": {"dtype": "uint64"}}, ConfigError, "'x' is an array of uint64; convert it"),
        ("one_hot", {}, ConfigError, r"'label' is an array of shape \(2,\); yield the class itself"),
    ],
)
def test_a_reader_that_does_not_fit_is_refused_in_one_sentence(tmp_path, function, source, error, message):
    with pytest.raises(error, match=message) as caught:
        stage(reader(function, **source), tmp_path)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "raw").glob("*.incomplete"))


def test_a_column_of_data_splits_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.splits\.column: example 1 has no 'patient'"):
        stage(reader("good", {"kind": "group", "column": "patient"}), tmp_path)
    with pytest.raises(ConfigError, match=r"data\.splits\.kind=file: readers_for_tests:good has no files"):
        stage(reader("good", {"kind": "file"}), tmp_path)


def test_a_module_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "readers_for_tests.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match="its module cannot be imported: ModuleNotFoundError: No module named 'noth"):
        stage(reader("good", folder=tmp_path), tmp_path)


def test_the_digest_follows_code_arguments_and_version(tmp_path):
    (tmp_path / "readers_for_tests.py").write_text("def f():\n    yield {}\n")
    digests = [
        staging_digest(reader("f", folder=tmp_path)),
        staging_digest(reader("f", folder=tmp_path, version="2")),
        staging_digest(reader("f", folder=tmp_path, args={"x": 1})),
        staging_digest(reader("f", {"kind": "group", "column": "x"}, folder=tmp_path)),
    ]
    (tmp_path / "readers_for_tests.py").write_text("def f():\n    yield {'x': 1}\n")
    digests.append(staging_digest(reader("f", folder=tmp_path)))
    assert len(set(digests)) == 5


@pytest.mark.parametrize(
    ("kind", "values", "found", "reason"),
    [
        ("regression", [0.1, 3, "x"], (("label",), [[0.1], [3.0]]), "is str, not a number"),
        (
            "regression",
            [[1, 0.5], [2, 1e300], [1]],
            (("label.0", "label.1"), [[1, 0.5], [2, 1e300]]),
            "has 1 numbers, not 2",
        ),
        (
            "multi_label",
            [["b", "a"], [], ["b", "b"], 7],
            (("a", "b"), [[1, 1], [0, 0], [0, 1]]),
            "is int, not a list of the",
        ),
        ("multi_label", ["b | a", "", "b"], (("a", "b"), [[1, 1], [0, 0], [0, 1]]), ""),
    ],
)
def test_a_reader_yields_numbers_or_any_number_of_classes(tmp_path, kind, values, found, reason):
    config = reader("learned", args={"values": values}).model_dump(mode="json")
    config = DataConfig.model_validate(config | {"target": {"kind": kind}})
    source = open_staged(config, stage(config, tmp_path).directory)
    [batch] = source.read()
    assert source.schema.target.dtype == batch.labels.dtype == ("float64" if kind == "regression" else "uint8")
    assert (source.schema.label_map, batch.labels.tolist()) == found
    assert [bad.reason.startswith(reason) for bad in batch.bad] == [True] * bool(reason)
