"""The columns of a table: inputs, ids, gaps, labels and splits are what the config says, or it says why not."""

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tasks.errors import ConfigError
from tasks.prepare.manifest import BadExample, Feature
from tests.prepare.table.small_table import TABLE, Files

# Columns and their roles


def test_structs_are_flattened_and_may_be_chosen_whole(opened: Any) -> None:
    struct = pa.array(
        [{"b": 1, "c": {"d": 0.5}}, None], pa.struct([("b", pa.int64()), ("c", pa.struct([("d", pa.float64())]))])
    )
    table = opened({"a.parquet": pa.table({"a": struct, "z": [1, 2], "y": ["u", "v"]})}, columns=["a"], missing="keep")
    assert table.schema.inputs == ("a_b", "a_c_d")
    assert opened.read(table)["a_b"] == [1, 0]
    assert opened.read(table)["a_c_d_missing"] == [0, 1]
    chosen = opened({"a.parquet": pa.table({"a": struct, "y": ["u", "v"]})}, columns=["a.c.d"], missing="keep")
    assert opened.read(chosen)["a_c_d"] == [0.5, 0.0]


def test_a_decimal_point_that_is_the_delimiter_too_is_refused_where_it_is_read(opened: Any) -> None:
    with pytest.raises(ConfigError, match=r"data\.source\.decimal_point=',': is the delimiter too"):
        opened({"a.csv": "x,y\n0,5,u\n"}, decimal_point=",")
    assert opened.read(opened({"a.csv": "x;y\n0,5;u\n1,5;v\n"}, decimal_point=",", delimiter=";"))["x"] == [0.5, 1.5]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"target": "Y"}, r"data\.source\.target: there is no column 'Y'"),
        (
            {"columns": ["wrd"]},
            r"data\.source\.columns: there is no column 'wrd'; did you mean 'word'\? There are n, x, word",
        ),
        ({"text": ["x1"]}, r"data\.source\.text: there is no column 'x1'"),
        ({"types": {"nn": "int64"}}, r"data\.source\.types: there is no column 'nn'"),
        ({"id": "key"}, r"data\.source\.id: there is no column 'key'"),
        ({"splits": {"kind": "group", "column": "who"}}, r"data\.splits\.column: there is no column 'who'"),
        ({"splits": {"kind": "official"}}, "kind: file"),
        ({"splits": {"kind": "time", "column": "yes"}}, "'yes' is bool, not a time"),
        (
            {"splits": {"kind": "time", "column": "n", "validation_from": "2026-01-01", "test_from": "2026-02-01"}},
            r"validation_from=2026-01-01: 'n' is int64, which is compared with whole numbers",
        ),
        (
            {"splits": {"kind": "time", "column": "n", "validation_from": "2", "test_from": "2026-02-01"}},
            r"test_from=2026-02-01: 'n' is int64",
        ),
        (
            {
                "types": {"word": "timestamp"},
                "splits": {"kind": "time", "column": "word", "validation_from": "2026", "test_from": "2027"},
            },
            r"validation_from=2026: 'word' is timestamp, which is compared with dates \(2026-01-31\)",
        ),
        (
            {"splits": {"kind": "time", "column": "n", "validation_window": "1 day", "test_window": "7 days"}},
            r"validation_window=1 day: 'n' is int64, which is compared with whole numbers",
        ),
        (
            {
                "types": {"word": "date"},
                "splits": {"kind": "time", "column": "word", "validation_window": "1 day", "test_window": 7},
            },
            r"test_window=7: 'word' is date, which is compared with lengths of time \(7 days\)",
        ),
        ({"columns": ["y"]}, "is the target"),
        ({"columns": ["x", "x"]}, "given twice"),
        ({"id": "y"}, "is the target too"),
        ({"text": ["n"]}, "'n' is int64, not text"),
        ({"text": ["word"], "types": {"word": "int64"}}, "leave it out of one of them"),
        ({"target": "x"}, "is .*, not a class.*regression"),
        ({"classes": ["a", "a"]}, "given twice"),
    ],
)
def test_a_config_that_does_not_fit_the_columns_says_so(opened: Any, source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        opened({"a.parquet": TABLE}, **source)


def test_a_csv_of_another_delimiter_is_told_from_a_missing_column(opened: Any) -> None:
    with pytest.raises(ConfigError, match=r"no column 'y', only 'x;y'; is data\.source\.delimiter what stands"):
        opened({"a.csv": "x;y\n1;a\n"})


def test_names_that_millstream_needs_are_not_taken(opened: Any) -> None:
    files: Files = {"a.csv": "id,x,y\n7,1,a\n8,2,b\n"}
    with pytest.raises(ConfigError, match=r"a column is named 'id'.*set data\.source\.id=id"):
        opened(files)
    assert opened.read(opened(files, id="id"))["keys"] == ["7", "8"]
    assert opened(files, columns=["id", "x"]).schema.inputs == ("id_", "x")
    with pytest.raises(ConfigError, match="a column is named 'label'"):
        opened({"a.csv": "label,x,y\n7,1,a\n"})
    with pytest.raises(ConfigError, match="'x' has missing values, to be marked by x_missing"):
        opened({"a.csv": "x,x_missing,y\n,1,a\n1,1,a\n"}, missing="keep")


def test_ids_name_rows_and_a_second_one_is_bad(opened: Any) -> None:
    files: Files = {"a.csv": "k,x,y\n007,1,a\n7,1,a\n,1,a\n", "b.csv": "k,x,y\n8,1,a\n007,1,a\n8,1,a\n"}
    table = opened(files, id="k")
    found = opened.read(table)
    assert found["keys"] == ["007", "7", "8"]
    assert [(bad.path, bad.row, bad.column, bad.reason) for bad in found["bad"]] == [
        ("a.csv", 3, "k", "is missing"),
        ("b.csv", 2, "k", "is '007', as in row 1 of a.csv, but an id names one row"),
        ("b.csv", 3, "k", "is '8', as in row 1 of b.csv, but an id names one row"),
    ]
    assert opened.read(table) == found
    assert table.schema.inputs == ("x",)


def test_missing_values_are_kept_and_marked_or_make_a_bad_row(opened: Any) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3]),
            "b": pa.array([None, True, False]),
            "x": [float("nan"), 1.5, 2.5],
            "s": ["", None, "a"],
            "v": pa.array([[1, 2], [3, 4], None]),
            "full": [1, 2, 3],
            "y": ["a", "b", None],
        }
    )
    kept = opened({"a.parquet": table}, missing="keep")
    found = opened.read(kept)
    assert [name for name, feature in kept.schema.features.items() if feature.missing] == ["i", "b", "x", "s", "v"]
    assert kept.schema.features["i_missing"] == Feature(kind="missing", shape=(), dtype="int64", storage="int64_list")
    assert (found["i"], found["i_missing"]) == ([1, 0], [0, 1])
    assert (found["b"], found["b_missing"]) == ([0, 1], [1, 0])
    assert (found["x"], found["x_missing"]) == ([0.0, 1.5], [1, 0])
    assert (found["s"], found["s_missing"]) == ([b"", b""], [0, 1])
    assert found["bad"] == [BadExample(path="a.parquet", row=3, column="y", reason="is missing")]
    refused = opened({"a.parquet": table})
    assert opened.bad(refused) == [(1, "b", "is missing"), (2, "i", "is missing"), (3, "v", "is missing")]
    assert list(refused.schema.features) == ["i", "b", "x", "s", "v", "full"]


# Labels


@pytest.mark.parametrize(
    ("target", "classes"),
    [
        (pa.array([3, 1, 10, 1]), ("1", "3", "10")),
        (pa.array([-1, 1, -1, 1], pa.int8()), ("-1", "1")),
        (pa.array([1.0, 2.0, 1.0, 1.0]), ("1", "2")),
        (pa.array([True, False, True, True]), ("false", "true")),
        (pa.array(["b", "ä", "a", "a"]).dictionary_encode(), ("a", "b", "ä")),
        (pa.array([[0, 1], [1, 0], [0, 1], [0, 1]], pa.list_(pa.int8(), 2)), ("0", "1")),
        (pa.array([[False, True], [True, False], [False, True], [False, True]]), ("0", "1")),
    ],
)
def test_labels_of_every_type_make_one_map(opened: Any, target: pa.Array, classes: Sequence[str]) -> None:
    table = opened({"a.parquet": pa.table({"x": [1, 2, 3, 4], "y": target})})
    assert table.schema.label_map == classes
    expected = [
        str(value.index(True) if isinstance(value, list) else int(value) if isinstance(value, float) else value)
        for value in target.to_pylist()
    ]
    assert opened.read(table)["labels"] == [name.lower() if name in ("True", "False") else name for name in expected]


def test_a_label_outside_the_given_classes_is_bad(opened: Any) -> None:
    table = opened({"a.csv": "x,y\n1,2\n2,9\n3,1\n"}, classes=["2", "1", "0"])
    assert table.schema.label_map == ("2", "1", "0")
    assert [batch.labels.tolist() for batch in table.read()] == [[0, 1]]
    assert opened.bad(table) == [(2, "y", "is '9', which is not one of data.source.classes")]
    boolean = opened({"a.csv": "x,y\n1,False\n2,True\n"}, classes=["True", "False"])
    assert opened.read(boolean)["labels"] == ["False", "True"]


def test_a_label_that_is_not_one_hot_is_bad(opened: Any) -> None:
    target = pa.array([[0, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0], [1, 0, 0]])
    table = opened({"a.parquet": pa.table({"x": range(5), "y": target})}, classes=["a", "b", "c"])
    assert opened.read(table)["labels"] == ["b", "a"]
    one_hot = "is not one-hot: one value 1 and all others 0"
    assert opened.bad(table) == [(2, "y", one_hot), (3, "y", one_hot), (4, "y", "has 2 values, not 3")]
    with pytest.raises(ConfigError, match=r"has 2 names, but the lists of 'y' have 3 values"):
        opened({"a.parquet": pa.table({"x": range(5), "y": target})}, classes=["a", "b"])


@pytest.mark.parametrize("target", [[0.5, 1.0], [datetime.date(2026, 1, 1)] * 2])
def test_a_target_that_names_no_classes_is_refused(opened: Any, target: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"data\.source\.target: 'y'"):
        opened({"a.parquet": pa.table({"x": [1, 2], "y": target})})


# Splits


def test_splits_by_group_time_and_file(opened: Any) -> None:
    files: Files = {
        "a.csv": "who,day,x,y\npatient01,1970-01-02,1,a\npatient2,1970-01-03,2,a\nnobody,,3,a\n",
        "b/c.csv": "who,day,x,y\n,1970-01-01,4,a\n",
    }
    groups = opened(files, splits={"kind": "group", "column": "who"}, columns=["x"])
    assert opened.read(groups)["split_by"] == ["patient01", "patient2", "nobody"]
    assert opened.bad(groups) == [(1, "who", "is missing")]
    matched = opened(files, splits={"kind": "group", "column": "who", "pattern": r"patient(\d+)"}, columns=["x"])
    assert opened.read(matched)["split_by"] == ["01", "2"]
    assert opened.bad(matched)[0] == (3, "who", "is 'nobody', without 'patient(\\\\d+)'")
    times = opened(files, splits={"kind": "time", "column": "day"}, columns=["x"])
    assert opened.read(times)["split_by"] == [86_400_000_000, 172_800_000_000, 0]
    assert opened.bad(times) == [(3, "day", "is missing")]
    by_file = opened(files, splits={"kind": "file", "train": "a*"}, columns=["x"])
    assert opened.read(by_file)["split_by"] == ["a.csv", "a.csv", "a.csv", "b/c.csv"]
    assert opened(files, splits={"kind": "time", "column": "x"}, columns=["who"]).schema.inputs == ("who",)
    default = opened({"a.csv": "who,x,y\n1,2,a\n"}, splits={"kind": "group", "column": "who"})
    assert default.schema.inputs == ("x",)


def test_times_in_text_and_in_numbers(opened: Any) -> None:
    splits = {"kind": "time", "column": "t"}
    text = pa.table({"t": ["1970-01-02", "1970-01-01T00:00:01Z", "soon"], "x": [1, 2, 3], "y": ["a"] * 3})
    table = opened({"a.parquet": text}, splits=splits)
    assert opened.read(table)["split_by"] == [86_400_000_000, 1_000_000]
    assert opened.bad(table) == [(3, "t", "is 'soon', not a time such as 2026-01-31T12:00:00")]
    floats = pa.table({"t": [2020.0, 2020.5], "x": [1, 2], "y": ["a"] * 2})
    assert opened.read(opened({"a.parquet": floats}, splits=splits))["split_by"] == [2020]
    stamps = pa.table({"t": pa.array([1, 2], pa.timestamp("s")), "x": [1, 2], "y": ["a"] * 2})
    assert opened.read(opened({"a.feather": stamps}, splits=splits))["split_by"] == [1_000_000, 2_000_000]
    assert any("taken as UTC: t" in note for note in opened({"a.feather": stamps}).notes)
