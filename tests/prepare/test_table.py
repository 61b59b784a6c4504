"""Table: a user's files become examples exactly, or the row, the column or the config is named that keeps them from it."""

import datetime
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tasks.config import DataConfig
from tasks.errors import ConfigError, DataError
from tasks.prepare import columnar, delimited, jsonlines
from tasks.prepare.manifest import BadExample, Feature
from tasks.prepare.table import Table, open_table

Files = dict[str, str | bytes | pa.Table]
MAX = 2**63 - 1


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Table]:
    """open_table over files that are written first: `opened({"a.csv": ...}, target="y", splits={...})`."""

    def write(files: Files, splits: dict[str, Any] | None = None, **source: Any) -> Table:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, pa.Table):
                _write(content, path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        source = {"kind": "table", "path": str(tmp_path), "target": "y"} | source
        config = DataConfig.model_validate({"source": source} | ({"splits": splits} if splits else {}))
        return open_table(config, tmp_path, list(files))

    return write


def _write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".feather":
            feather.write_feather(table, path)
        case ".csv":
            pa_csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


def _read(table: Table) -> dict[str, list[Any]]:
    """All batches as one: rows, keys, labels (names), split_by, bad and the features."""
    batches = list(table.read())
    found: dict[str, list[Any]] = {
        "rows": [row for batch in batches for row in batch.rows.tolist()],
        "keys": [key for batch in batches for key in batch.keys],
        "labels": [table.schema.label_map[label] for batch in batches for label in batch.labels],
        "bad": [bad for batch in batches for bad in batch.bad],
        "split_by": [value for batch in batches if batch.split_by is not None for value in list(batch.split_by)],
    }
    for name, feature in table.schema.features.items():
        for batch in batches:
            values = batch.columns[name]
            if isinstance(values, np.ndarray):
                assert values.dtype == feature.dtype
                assert values.shape == (len(batch.rows), *feature.shape)
        columns = [batch.columns[name] for batch in batches]
        found[name] = [v for column in columns for v in (column.tolist() if isinstance(column, np.ndarray) else column)]
    return found


def _bad(table: Table) -> list[tuple[int | None, str | None, str]]:
    return [(bad.row, bad.column, bad.reason) for bad in _read(table)["bad"]]


TABLE = pa.table(
    {
        "n": [9007199254740993, -MAX, 0],
        "x": [0.1, 1e-300, 2.0],
        "word": ["ö", "a,b\nc", 'say "hi"'],
        "yes": [True, False, True],
        "y": ["b", "a", "b"],
    }
)


@pytest.mark.parametrize("file", ["a.parquet", "a.feather", "a.csv", "a.jsonl"])
def test_every_format_gives_the_same_examples(opened: Callable[..., Table], file: str) -> None:
    table = opened({file: TABLE})
    assert table.schema.features == {
        "n": Feature(kind="number", shape=(), dtype="int64", storage="int64_list"),
        "x": Feature(kind="number", shape=(), dtype="float64", storage="raw_bytes"),
        "word": Feature(kind="category", shape=(), dtype="string", storage="bytes_list"),
        "yes": Feature(kind="number", shape=(), dtype="int64", storage="int64_list"),
    }
    assert table.schema.inputs == ("n", "x", "word", "yes")
    assert table.schema.label_map == ("a", "b")
    assert _read(table) == {
        "rows": [0, 1, 2],
        "keys": [f"{file}:{row}" for row in (1, 2, 3)],
        "labels": ["b", "a", "b"],
        "bad": [],
        "split_by": [],
        "n": TABLE["n"].to_pylist(),
        "x": TABLE["x"].to_pylist(),
        "word": [text.encode() for text in TABLE["word"].to_pylist()],
        "yes": [1, 0, 1],
    }


@pytest.mark.parametrize("file", ["a.parquet", "a.feather", "a.csv", "a.jsonl"])
def test_reading_again_and_in_smaller_parts_gives_the_same(
    opened: Callable[..., Table], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {i}" + ("\n" if i % 97 == 0 else "") for i in range(1000)]
    table = pa.table({"i": range(1000), "t": texts, "y": [i % 3 for i in range(1000)]})
    first = opened({file: table}, text=["t"])
    once = _read(first)
    assert _read(first) == once
    assert once["i"] == list(range(1000))
    assert once["t"] == [text.encode() for text in texts]
    assert once["rows"] == list(range(1000))
    monkeypatch.setattr(columnar, "BATCH_BYTES", 500)
    monkeypatch.setattr(delimited, "BLOCK_CHARACTERS", 97)
    monkeypatch.setattr(jsonlines, "BATCH_BYTES", 500)
    again = opened({file: table}, text=["t"])
    assert len(list(again.read())) > 20
    assert _read(again) == once


def test_rows_are_counted_over_all_files_in_their_order(opened: Callable[..., Table]) -> None:
    table = opened({"b.csv": "x,y\n1,a\n2\n3,a\n", "a.csv": "y,x\nb,4\nb,5,6\nb,6\n"})
    found = _read(table)
    assert found["rows"] == [0, 2, 3, 5]
    assert found["keys"] == ["b.csv:1", "b.csv:3", "a.csv:1", "a.csv:3"]
    assert found["x"] == [1, 3, 4, 6]
    assert found["bad"] == [
        BadExample(path="b.csv", row=2, reason="has 1 values, not 2"),
        BadExample(path="a.csv", row=2, reason="has 3 values, not 2"),
    ]


# Types of a CSV


def test_a_column_empty_at_first_then_whole_then_fractional_has_one_type(
    opened: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "BLOCK_CHARACTERS", 16)  # arrow#49338: the first block is not the whole column
    rows = [",a\n"] * 20 + ["1,a\n"] * 20 + ["2.5,a\n"]
    table = opened({"a.csv": "x,y\n" + "".join(rows[:30]), "b.csv": "x,y\n" + "".join(rows[30:])}, missing="keep")
    assert table.schema.features["x"].dtype == "float64"
    assert _read(table)["x"] == [0.0] * 20 + [1.0] * 20 + [2.5]
    assert _read(table)["x_missing"] == [1] * 20 + [0] * 21
    assert "types of columns, from all rows of all files: x float64, y string" in table.notes


@pytest.mark.parametrize("token", ["", "NULL", "NA", "-"])
@pytest.mark.parametrize("quoted", [False, True])
def test_null_tokens_are_missing_values_quoted_or_not(opened: Callable[..., Table], token: str, quoted: bool) -> None:
    written = f'"{token}"' if quoted else token
    table = opened({"a.csv": f"x,y\n1,a\n{written},a\n 3,b\n"}, null_tokens=[token], missing="keep")
    assert table.schema.features["x"].missing == "x_missing"
    assert _read(table)["x"] == [1, 0, 3]
    assert _read(table)["x_missing"] == [0, 1, 0]
    refused = opened({"a.csv": f"x,y\n1,a\n{written},a\n 3,b\n"}, null_tokens=[token])
    assert _bad(refused) == [(2, "x", "is missing")]


def test_a_number_column_with_an_unknown_token_is_refused_with_its_row(opened: Callable[..., Table]) -> None:
    with pytest.raises(ConfigError, match=r"'x' holds numbers but for 1 of 3 values, such as 'NA' in row 2 of a\.csv"):
        opened({"a.csv": "x,y\n1,a\nNA,a\n3,b\n"})
    table = opened({"a.csv": "x,y\n1,a\n12.x,a\n3,b\n"}, types={"x": "int64"})
    assert _bad(table) == [(2, "x", "is '12.x', not a whole number")]
    assert _read(table)["x"] == [1, 3]


def test_integers_of_19_digits_are_exact_and_longer_ones_refused(opened: Callable[..., Table]) -> None:
    csv = f"x,y\n{MAX},a\n9007199254740993,b\n"
    assert _read(opened({"a.csv": csv}))["x"] == [MAX, 9007199254740993]
    too_long = csv + f"{MAX + 1},a\n"
    with pytest.raises(ConfigError, match=r"'x'.*'9223372036854775808' in row 3 of a\.csv.*string or float64"):
        opened({"a.csv": too_long})
    assert _read(opened({"a.csv": too_long}, types={"x": "string"}))["x"][2] == b"9223372036854775808"
    assert _read(opened({"a.csv": too_long}, types={"x": "float64"}))["x"][2] == 2.0**63
    assert _bad(opened({"a.csv": too_long}, types={"x": "int64"}))[0][:2] == (3, "x")
    jsonl = f'{{"x": {MAX}, "y": 1}}\n{{"x": {MAX + 1}, "y": 1}}\n'
    with pytest.raises(ConfigError, match=r"'x' holds 9223372036854775808 in row 2 of a\.jsonl"):
        opened({"a.jsonl": jsonl})
    assert _read(opened({"a.jsonl": jsonl}, types={"x": "string"}))["x"] == [str(MAX).encode(), str(MAX + 1).encode()]
    parquet = pa.table({"x": pa.array([MAX, MAX + 1], pa.uint64()), "y": ["a", "b"]})
    assert [bad[:2] for bad in _bad(opened({"a.parquet": parquet}))] == [(2, "x")]


def test_the_options_of_a_csv(opened: Callable[..., Table]) -> None:
    csv = "größe;y\n1,5;ä\n2,5;ö\n".encode("latin-1")
    table = opened({"a.csv": csv}, encoding="latin-1", delimiter=";", decimal_point=",")
    assert _read(table)["groudfe"] == [1.5, 2.5]
    assert table.schema.label_map == ("ä", "ö")
    assert any("größe is groudfe" in note for note in table.notes)
    assert _read(opened({"a.csv": "\ufeffx,y\r\n1,a\r\n\r\n2,b\r\n"}))["x"] == [1, 2]
    assert _read(opened({"a.csv": "x,y\n1,a\n".encode("utf-16")}, encoding="utf-16"))["x"] == [1]
    assert _read(opened({"a.tsv": "x\ty\n1\ta\n"}))["x"] == [1]
    assert _read(opened({"a.csv.gz": gzip.compress(b"x,y\n1,a\n")}))["x"] == [1]
    assert _read(opened({"a.csv": "x,y\r1,a\r2,b\r"}))["x"] == [1, 2]
    assert _read(opened({"data": "x,y\n1,a\n"}, format="csv"))["x"] == [1]


def test_a_broken_row_of_a_csv_is_bad_and_named(opened: Callable[..., Table]) -> None:
    csv = b'x,y\n1,a\n2\n3,"b"c\n4,\xff\n5,a,6\n"6",a\n'
    assert _bad(opened({"a.csv": csv})) == [
        (2, None, "has 1 values, not 2"),
        (3, None, "has a quote out of place"),
        (4, "y", "is not utf-8; set data.source.encoding"),
        (5, None, "has 3 values, not 2"),
    ]
    assert _read(opened({"a.csv": csv}))["x"] == [1, 6]


@pytest.mark.parametrize(
    ("csv", "source", "error", "message"),
    [
        ('x,y\n1,a\n2,"b\n3,c\n', {}, DataError, "row 2 opens a quote that is never closed"),
        ("", {}, DataError, "has no header"),
        ("x,x,y\n", {}, DataError, "has two columns 'x'"),
        ("x,y\n", {}, DataError, "holds no rows"),
        ("x,y\n,a\n,b\n", {}, ConfigError, "column 'x' has no value in any row; leave it out"),
        ("x,y\n1,\n2,\n", {}, ConfigError, "'y' has no value in any example"),
        ("x,y\n1,a\n", {"encoding": "latin1x"}, ConfigError, "is no encoding of text"),
        ("x,y\n1,a\n", {"encoding": "utf-32"}, DataError, "is not utf-32"),
        ("x,y\n1,a\n", {"delimiter": "\n"}, ConfigError, r"data.source.delimiter"),
        (b"x\xff,y\n1,a\n", {}, DataError, "header that is not utf-8"),
    ],
)
def test_a_csv_that_cannot_be_read_is_refused(
    opened: Callable[..., Table], csv: str | bytes, source: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(opened({"a.csv": csv}, **source).read())


def test_a_column_without_a_name_is_left_out_and_said_so(opened: Callable[..., Table]) -> None:
    table = opened({"a.csv": ",x,y\n0,1,a\n"})
    assert table.schema.inputs == ("x",)
    assert "column 1 has no name in the header and was left out" in table.notes


# JSON lines


def test_json_lines_keep_their_types(opened: Callable[..., Table]) -> None:
    lines = [
        '{"a": {"b": 1, "c": "1"}, "v": [1, 2.5], "y": true}',
        "",
        '{"a": {"b": 2.5, "c": "x"}, "v": [0, 1], "y": false}',
        '{"a": null, "v": null, "y": false}',
    ]
    table = opened({"a.jsonl": "\n".join(lines)}, missing="keep")
    found = _read(table)
    assert table.schema.inputs == ("a_b", "a_c", "v")
    assert (found["a_b"], found["a_b_missing"]) == ([1.0, 2.5, 0.0], [0, 0, 1])
    assert (found["a_c"], found["a_c_missing"]) == ([b"1", b"x", b""], [0, 0, 1])
    assert (found["v"], found["v_missing"]) == ([[1.0, 2.5], [0.0, 1.0], [0.0, 0.0]], [0, 0, 1])
    assert found["labels"] == ["true", "false", "false"]


def test_a_line_that_is_no_object_is_a_bad_row(opened: Callable[..., Table]) -> None:
    good = '{"x": 1, "y": "a"}'
    bad = ["[1]", '{"x": 1,', '{"x": 1, "x": 2, "y": "a"}', '{"x": 1, "y": "\\ud800"}', "3", "{" * 100_000]
    table = opened({"a.jsonl": "\n".join([good, *bad, good])})
    assert [bad[0] for bad in _bad(table)] == [2, 3, 4, 5, 6, 7]
    assert all(bad[2].startswith("is not a JSON object: ") for bad in _bad(table))
    assert _read(table)["rows"] == [0, 7]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"x": 1, "y": 1}\n{"x": "1", "y": 1}', r"'x' holds values of different types: 1 in row 1.* and '1' in row 2"),
        ('{"x": 1, "y": 1}\n{"x": 1, "y": "1"}', r"'y' holds values of different types"),
        ('{"x": true, "y": 1}\n{"x": 1, "y": 1}', "different types"),
        ('{"x": 1, "y": 1}\n{"x": {"a": 1}, "y": 1}', "different types: an object in another row and 1 in row 1"),
        ('{"x": 1, "y": 1}\n{"x": {}, "y": 1}', "different types"),
        ('{"x": {}, "y": 1}', "has no rule"),
        ('{"x": 0.5, "y": 1}\n{"x": 9007199254740993, "y": 1}', "9007199254740993 in row 2"),
        ('{"x": ["a"], "y": 1}', "has no rule"),
        ('{"x": [1, "a"], "y": 1}', "has no rule"),
        ('{"x": [[1]], "y": 1}', "has no rule"),
        ('{"x": [], "y": 1}', "has no rule"),
        ('{"x": null, "y": 1}', "'x' has no value in any row"),
        ('[{"x": 1, "y": 1}]', "begins with a list.*jq"),
    ],
)
def test_json_that_would_have_to_be_converted_is_refused(
    opened: Callable[..., Table], lines: str, message: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        opened({"a.jsonl": lines})


def test_mixed_json_is_read_as_the_type_that_is_asked_for(opened: Callable[..., Table]) -> None:
    lines = '{"x": 1, "y": 1}\n{"x": "2", "y": "1"}\n{"x": true, "y": 1}\n{"x": 2.0, "y": 1}'
    table = opened({"a.jsonl": lines}, types={"x": "int64", "y": "string"})
    assert _read(table)["x"] == [1, 2]
    assert _bad(table) == [(3, "x", "is 'true', not a whole number"), (4, "x", "is '2.0', not a whole number")]
    assert table.schema.label_map == ("1",)


# Files that do not agree


def test_files_of_different_schemas(opened: Callable[..., Table]) -> None:
    one = pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]})
    same = pa.table({"y": pa.array(["b"]).dictionary_encode(), "x": pa.array([2], pa.int64())})
    empty = pa.table({"x": pa.nulls(1), "y": ["a"]})
    table = opened({"1.parquet": one, "2.parquet": same, "3.parquet": empty}, missing="keep")
    assert _read(table)["x"] == [1, 2, 0]
    assert table.schema.label_map == ("a", "b")
    other = pa.table({"x": [0.5], "y": ["b"]})
    with pytest.raises(ConfigError, match=r"'x' is int32 in 1\.parquet but double in 2\.parquet"):
        opened({"1.parquet": one, "2.parquet": other})
    assert _read(opened({"1.parquet": one, "2.parquet": other}, types={"x": "float64"}))["x"] == [1.0, 0.5]
    with pytest.raises(ConfigError, match=r"'x' of 1\.parquet is not in 2\.parquet"):
        opened({"1.parquet": one, "2.parquet": other.drop_columns(["x"])})
    with pytest.raises(ConfigError, match=r"1\.parquet is parquet but 2\.csv is csv"):
        opened({"1.parquet": one, "2.csv": "x,y\n1,a\n"})
    with pytest.raises(ConfigError, match=r"README\.md has no ending"):
        opened({"README.md": "hello"})


def test_labels_that_are_text_in_one_file_and_numbers_in_another_are_never_two_classes(
    opened: Callable[..., Table],
) -> None:
    files: Files = {"1.parquet": pa.table({"x": [1], "y": ["1"]}), "2.parquet": pa.table({"x": [1], "y": [1]})}
    with pytest.raises(ConfigError, match=r"'y' is string in 1\.parquet but int64 in 2\.parquet"):
        opened(files)
    assert opened(files, types={"y": "string"}).schema.label_map == ("1",)
    assert opened({"1.csv": "x,y\n1,1\n", "2.csv": "x,y\n1,1.0\n"}).schema.label_map == ("1",)


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_damaged_file_is_named(opened: Callable[..., Table], tmp_path: Path, suffix: str, cut: int) -> None:
    opened({f"a.{suffix}": TABLE})
    data = (tmp_path / f"a.{suffix}").read_bytes()[:cut]
    with pytest.raises(DataError, match=rf"a\.{suffix}: cannot be read as"):
        list(opened({f"a.{suffix}": data}).read())


def test_a_cut_archive_of_a_csv_is_named(opened: Callable[..., Table]) -> None:
    packed = gzip.compress(b"x,y\n" + b"1,a\n" * 1000)
    with pytest.raises(DataError, match=r"a\.csv\.gz: cannot be read"):
        list(opened({"a.csv.gz": packed[:-20]}).read())


def test_folders_named_column_value_add_the_column(opened: Callable[..., Table]) -> None:
    table = pa.table({"x": [1], "y": ["a"]})
    files: Files = {
        f"year={year}/month={m}/a%20b={v}/p.parquet": table for year, m, v in [(25, "01", "u%2Fv"), (26, "12", "w")]
    }
    opened_table = opened(files)
    assert _read(opened_table)["year"] == [25, 26]
    assert _read(opened_table)["month"] == [b"01", b"12"]
    assert _read(opened_table)["a_20b"] == [b"u/v", b"w"]
    assert _read(opened(files, columns=["year"]))["year"] == [25, 26]
    missing: Files = {"k=1/p.parquet": table, "k=__HIVE_DEFAULT_PARTITION__/p.parquet": table}
    assert _read(opened(missing, missing="keep"))["k_missing"] == [0, 1]
    with pytest.raises(DataError, match="lies in folders of the columns"):
        opened({"k=1/p.parquet": table, "p.parquet": table})
    with pytest.raises(DataError, match="has a column 'x' and a folder x="):
        opened({"x=1/p.parquet": table})


# Columns and their roles


def test_structs_are_flattened_and_may_be_chosen_whole(opened: Callable[..., Table]) -> None:
    struct = pa.array(
        [{"b": 1, "c": {"d": 0.5}}, None], pa.struct([("b", pa.int64()), ("c", pa.struct([("d", pa.float64())]))])
    )
    table = opened({"a.parquet": pa.table({"a": struct, "z": [1, 2], "y": ["u", "v"]})}, columns=["a"], missing="keep")
    assert table.schema.inputs == ("a_b", "a_c_d")
    assert _read(table)["a_b"] == [1, 0]
    assert _read(table)["a_c_d_missing"] == [0, 1]
    chosen = opened({"a.parquet": pa.table({"a": struct, "y": ["u", "v"]})}, columns=["a.c.d"], missing="keep")
    assert _read(chosen)["a_c_d"] == [0.5, 0.0]


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
            "no date",
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
def test_a_config_that_does_not_fit_the_columns_says_so(
    opened: Callable[..., Table], source: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        opened({"a.parquet": TABLE}, **source)


def test_names_that_millstream_needs_are_not_taken(opened: Callable[..., Table]) -> None:
    files: Files = {"a.csv": "id,x,y\n7,1,a\n8,2,b\n"}
    with pytest.raises(ConfigError, match="a column is named 'id'.*set id: id"):
        opened(files)
    assert _read(opened(files, id="id"))["keys"] == ["7", "8"]
    assert opened(files, columns=["id", "x"]).schema.inputs == ("id_", "x")
    with pytest.raises(ConfigError, match="a column is named 'label'"):
        opened({"a.csv": "label,x,y\n7,1,a\n"})
    with pytest.raises(ConfigError, match="'x' has missing values, to be marked by x_missing"):
        opened({"a.csv": "x,x_missing,y\n,1,a\n1,1,a\n"}, missing="keep")


def test_ids_name_rows_and_a_second_one_is_bad(opened: Callable[..., Table]) -> None:
    files: Files = {"a.csv": "k,x,y\n007,1,a\n7,1,a\n,1,a\n", "b.csv": "k,x,y\n8,1,a\n007,1,a\n8,1,a\n"}
    table = opened(files, id="k")
    found = _read(table)
    assert found["keys"] == ["007", "7", "8"]
    assert [(bad.path, bad.row, bad.column, bad.reason) for bad in found["bad"]] == [
        ("a.csv", 3, "k", "is missing"),
        ("b.csv", 2, "k", "is '007', as in row 1 of a.csv, but an id names one row"),
        ("b.csv", 3, "k", "is '8', as in row 1 of b.csv, but an id names one row"),
    ]
    assert _read(table) == found
    assert table.schema.inputs == ("x",)


def test_missing_values_are_kept_and_marked_or_make_a_bad_row(opened: Callable[..., Table]) -> None:
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
    found = _read(kept)
    assert [name for name, feature in kept.schema.features.items() if feature.missing] == ["i", "b", "x", "s", "v"]
    assert kept.schema.features["i_missing"] == Feature(kind="missing", shape=(), dtype="int64", storage="int64_list")
    assert (found["i"], found["i_missing"]) == ([1, 0], [0, 1])
    assert (found["b"], found["b_missing"]) == ([0, 1], [1, 0])
    assert (found["x"], found["x_missing"]) == ([0.0, 1.5], [1, 0])
    assert (found["s"], found["s_missing"]) == ([b"", b""], [0, 1])
    assert found["bad"] == [BadExample(path="a.parquet", row=3, column="y", reason="is missing")]
    refused = opened({"a.parquet": table})
    assert _bad(refused) == [(1, "b", "is missing"), (2, "i", "is missing"), (3, "v", "is missing")]
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
def test_labels_of_every_type_make_one_map(
    opened: Callable[..., Table], target: pa.Array, classes: Sequence[str]
) -> None:
    table = opened({"a.parquet": pa.table({"x": [1, 2, 3, 4], "y": target})})
    assert table.schema.label_map == classes
    expected = [
        str(value.index(True) if isinstance(value, list) else int(value) if isinstance(value, float) else value)
        for value in (target.to_pylist() if not pa.types.is_list(target.type) else target.to_pylist())
    ]
    assert _read(table)["labels"] == [name.lower() if name in ("True", "False") else name for name in expected]


def test_a_label_outside_the_given_classes_is_bad(opened: Callable[..., Table]) -> None:
    table = opened({"a.csv": "x,y\n1,2\n2,9\n3,1\n"}, classes=["2", "1", "0"])
    assert table.schema.label_map == ("2", "1", "0")
    assert [batch.labels.tolist() for batch in table.read()] == [[0, 1]]
    assert _bad(table) == [(2, "y", "is '9', which is not one of data.source.classes")]
    boolean = opened({"a.csv": "x,y\n1,False\n2,True\n"}, classes=["True", "False"])
    assert _read(boolean)["labels"] == ["False", "True"]


def test_a_label_that_is_not_one_hot_is_bad(opened: Callable[..., Table]) -> None:
    target = pa.array([[0, 1, 0], [0, 0, 0], [1, 1, 0], [1, 0], [1, 0, 0]])
    table = opened({"a.parquet": pa.table({"x": range(5), "y": target})}, classes=["a", "b", "c"])
    assert _read(table)["labels"] == ["b", "a"]
    one_hot = "is not one-hot: one value 1 and all others 0"
    assert _bad(table) == [(2, "y", one_hot), (3, "y", one_hot), (4, "y", "has 2 values, not 3")]
    with pytest.raises(ConfigError, match=r"has 2 names, but the lists of 'y' have 3 values"):
        opened({"a.parquet": pa.table({"x": range(5), "y": target})}, classes=["a", "b"])


@pytest.mark.parametrize("target", [[0.5, 1.0], [datetime.date(2026, 1, 1)] * 2])
def test_a_target_that_names_no_classes_is_refused(opened: Callable[..., Table], target: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"data\.source\.target: 'y'"):
        opened({"a.parquet": pa.table({"x": [1, 2], "y": target})})


# Splits


def test_splits_by_group_time_and_file(opened: Callable[..., Table]) -> None:
    files: Files = {
        "a.csv": "who,day,x,y\npatient01,1970-01-02,1,a\npatient2,1970-01-03,2,a\nnobody,,3,a\n",
        "b/c.csv": "who,day,x,y\n,1970-01-01,4,a\n",
    }
    groups = opened(files, splits={"kind": "group", "column": "who"}, columns=["x"])
    assert _read(groups)["split_by"] == ["patient01", "patient2", "nobody"]
    assert _bad(groups) == [(1, "who", "is missing")]
    matched = opened(files, splits={"kind": "group", "column": "who", "pattern": r"patient(\d+)"}, columns=["x"])
    assert _read(matched)["split_by"] == ["01", "2"]
    assert _bad(matched)[0] == (3, "who", "is 'nobody', without 'patient(\\\\d+)'")
    times = opened(files, splits={"kind": "time", "column": "day"}, columns=["x"])
    assert _read(times)["split_by"] == [86_400_000_000, 172_800_000_000, 0]
    assert _bad(times) == [(3, "day", "is missing")]
    by_file = opened(files, splits={"kind": "file", "train": "a*"}, columns=["x"])
    assert _read(by_file)["split_by"] == ["a.csv", "a.csv", "a.csv", "b/c.csv"]
    assert opened(files, splits={"kind": "time", "column": "x"}, columns=["who"]).schema.inputs == ("who",)
    default = opened({"a.csv": "who,x,y\n1,2,a\n"}, splits={"kind": "group", "column": "who"})
    assert default.schema.inputs == ("x",)


def test_times_in_text_and_in_numbers(opened: Callable[..., Table]) -> None:
    splits = {"kind": "time", "column": "t"}
    text = pa.table({"t": ["1970-01-02", "1970-01-01T00:00:01Z", "soon"], "x": [1, 2, 3], "y": ["a"] * 3})
    table = opened({"a.parquet": text}, splits=splits)
    assert _read(table)["split_by"] == [86_400_000_000, 1_000_000]
    assert _bad(table) == [(3, "t", "is 'soon', not a time such as 2026-01-31T12:00:00")]
    floats = pa.table({"t": [2020.0, 2020.5], "x": [1, 2], "y": ["a"] * 2})
    assert _read(opened({"a.parquet": floats}, splits=splits))["split_by"] == [2020]
    stamps = pa.table({"t": pa.array([1, 2], pa.timestamp("s")), "x": [1, 2], "y": ["a"] * 2})
    assert _read(opened({"a.feather": stamps}, splits=splits))["split_by"] == [1_000_000, 2_000_000]
    assert any("taken as UTC: t" in note for note in opened({"a.feather": stamps}).notes)
