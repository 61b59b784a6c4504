"""The files of a table: every format gives the same examples, and what is damaged is named."""

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import BadExample, Feature
from tasks.prepare.table import columnar, delimited, json_lines
from tests.prepare.table.small_table import MAX, TABLE, Files


@pytest.mark.parametrize("file", ["a.parquet", "a.feather", "a.csv", "a.jsonl"])
def test_every_format_gives_the_same_examples(opened: Any, file: str) -> None:
    table = opened({file: TABLE})
    assert table.schema.features == {
        "n": Feature(kind="number", shape=(), dtype="int64", storage="int64_list"),
        "x": Feature(kind="number", shape=(), dtype="float64", storage="raw_bytes"),
        "word": Feature(kind="category", shape=(), dtype="string", storage="bytes_list"),
        "yes": Feature(kind="number", shape=(), dtype="int64", storage="int64_list"),
    }
    assert table.schema.inputs == ("n", "x", "word", "yes")
    assert table.schema.label_map == ("a", "b")
    assert opened.read(table) == {
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
    opened: Any, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {i}" + ("\n" if i % 97 == 0 else "") for i in range(1000)]
    table = pa.table({"i": range(1000), "t": texts, "y": [i % 3 for i in range(1000)]})
    first = opened({file: table}, text=["t"])
    once = opened.read(first)
    assert opened.read(first) == once
    assert once["i"] == list(range(1000))
    assert once["t"] == [text.encode() for text in texts]
    assert once["rows"] == list(range(1000))
    monkeypatch.setattr(columnar, "BATCH_BYTES", 500)
    monkeypatch.setattr(delimited, "BLOCK_CHARACTERS", 97)
    monkeypatch.setattr(json_lines, "BATCH_BYTES", 500)
    again = opened({file: table}, text=["t"])
    assert len(list(again.read())) > 20
    assert opened.read(again) == once


def test_rows_are_counted_over_all_files_in_their_order(opened: Any) -> None:
    table = opened({"b.csv": "x,y\n1,a\n2\n3,a\n", "a.csv": "y,x\nb,4\nb,5,6\nb,6\n"})
    found = opened.read(table)
    assert found["rows"] == [0, 2, 3, 5]
    assert found["keys"] == ["b.csv:1", "b.csv:3", "a.csv:1", "a.csv:3"]
    assert found["x"] == [1, 3, 4, 6]
    assert found["bad"] == [
        BadExample(path="b.csv", row=2, reason="has 1 values, not 2"),
        BadExample(path="a.csv", row=2, reason="has 3 values, not 2"),
    ]


# Types of a CSV


def test_a_column_empty_at_first_then_whole_then_fractional_has_one_type(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "BLOCK_CHARACTERS", 16)  # arrow#49338: the first block is not the whole column
    rows = [",a\n"] * 20 + ["1,a\n"] * 20 + ["2.5,a\n"]
    table = opened({"a.csv": "x,y\n" + "".join(rows[:30]), "b.csv": "x,y\n" + "".join(rows[30:])}, missing="keep")
    assert table.schema.features["x"].dtype == "float64"
    assert opened.read(table)["x"] == [0.0] * 20 + [1.0] * 20 + [2.5]
    assert opened.read(table)["x_missing"] == [1] * 20 + [0] * 21
    assert "column types, inferred from all rows of all files: x float64, y string" in table.notes


@pytest.mark.parametrize("token", ["", "NULL", "NA", "-"])
@pytest.mark.parametrize("quoted", [False, True])
def test_null_tokens_are_missing_values_quoted_or_not(opened: Any, token: str, quoted: bool) -> None:
    written = f'"{token}"' if quoted else token
    table = opened({"a.csv": f"x,y\n1,a\n{written},a\n 3,b\n"}, null_tokens=[token], missing="keep")
    assert table.schema.features["x"].missing == "x_missing"
    assert opened.read(table)["x"] == [1, 0, 3]
    assert opened.read(table)["x_missing"] == [0, 1, 0]
    refused = opened({"a.csv": f"x,y\n1,a\n{written},a\n 3,b\n"}, null_tokens=[token])
    assert opened.bad(refused) == [(2, "x", "is missing")]


def test_a_number_column_with_an_unknown_token_is_refused_with_its_row(opened: Any) -> None:
    with pytest.raises(ConfigError, match=r"'x' holds numbers but for 1 of 3 values, such as 'NA' in row 2 of a\.csv"):
        opened({"a.csv": "x,y\n1,a\nNA,a\n3,b\n"})
    table = opened({"a.csv": "x,y\n1,a\n12.x,a\n3,b\n"}, types={"x": "int64"})
    assert opened.bad(table) == [(2, "x", "is '12.x', not a whole number")]
    assert opened.read(table)["x"] == [1, 3]


def test_integers_of_19_digits_are_exact_and_longer_ones_refused(opened: Any) -> None:
    csv = f"x,y\n{MAX},a\n9007199254740993,b\n"
    assert opened.read(opened({"a.csv": csv}))["x"] == [MAX, 9007199254740993]
    too_long = csv + f"{MAX + 1},a\n"
    with pytest.raises(
        ConfigError, match=r"'x'.*'9223372036854775808' in row 3 of a\.csv exactly; .*string\} or float64"
    ):
        opened({"a.csv": too_long})
    assert opened.read(opened({"a.csv": too_long}, types={"x": "string"}))["x"][2] == b"9223372036854775808"
    assert opened.read(opened({"a.csv": too_long}, types={"x": "float64"}))["x"][2] == 2.0**63
    assert opened.bad(opened({"a.csv": too_long}, types={"x": "int64"}))[0][:2] == (3, "x")
    jsonl = f'{{"x": {MAX}, "y": 1}}\n{{"x": {MAX + 1}, "y": 1}}\n'
    with pytest.raises(ConfigError, match=r"'x' holds 9223372036854775808 in row 2 of a\.jsonl"):
        opened({"a.jsonl": jsonl})
    assert opened.read(opened({"a.jsonl": jsonl}, types={"x": "string"}))["x"] == [
        str(MAX).encode(),
        str(MAX + 1).encode(),
    ]
    parquet = pa.table({"x": pa.array([MAX, MAX + 1], pa.uint64()), "y": ["a", "b"]})
    assert [bad[:2] for bad in opened.bad(opened({"a.parquet": parquet}))] == [(2, "x")]


def test_the_options_of_a_csv(opened: Any) -> None:
    csv = "größe;y\n1,5;ä\n2,5;ö\n".encode("latin-1")
    table = opened({"a.csv": csv}, encoding="latin-1", delimiter=";", decimal_point=",")
    assert opened.read(table)["groudfe"] == [1.5, 2.5]
    assert table.schema.label_map == ("ä", "ö")
    assert any("größe is groudfe" in note for note in table.notes)
    assert opened.read(opened({"a.csv": "\ufeffx,y\r\n1,a\r\n\r\n2,b\r\n"}))["x"] == [1, 2]
    assert opened.read(opened({"a.csv": "x,y\n1,a\n".encode("utf-16")}, encoding="utf-16"))["x"] == [1]
    assert opened.read(opened({"a.tsv": "x\ty\n1\ta\n"}))["x"] == [1]
    assert opened.read(opened({"a.csv.gz": gzip.compress(b"x,y\n1,a\n")}))["x"] == [1]
    assert opened.read(opened({"a.csv": "x,y\r1,a\r2,b\r"}))["x"] == [1, 2]
    assert opened.read(opened({"data": "x,y\n1,a\n"}, format="csv"))["x"] == [1]


def test_a_broken_row_of_a_csv_is_bad_and_named(opened: Any) -> None:
    csv = b'x,y\n1,a\n2\n3,"b"c\n4,\xff\n5,a,6\n"6",a\n'
    assert opened.bad(opened({"a.csv": csv})) == [
        (2, None, "has 1 values, not 2"),
        (3, None, "has a quote out of place"),
        (4, "y", "is not utf-8; set data.source.encoding"),
        (5, None, "has 3 values, not 2"),
    ]
    assert opened.read(opened({"a.csv": csv}))["x"] == [1, 6]


@pytest.mark.parametrize(
    ("csv", "source", "error", "message"),
    [
        (
            "x,y\n1,a\n",
            {"encoding": "utf-16"},
            DataError,
            r"is not utf-16 \(UTF-16 stream does not start with BOM\); set",
        ),
        ("x,y\n1,a\n", {"encoding": "\0"}, ConfigError, r"encoding='\\x00': is no encoding of text; use one such as"),
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
    opened: Any, csv: str | bytes, source: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(opened({"a.csv": csv}, **source).read())


def test_a_column_without_a_name_is_left_out_and_said_so(opened: Any) -> None:
    table = opened({"a.csv": ",x,y\n0,1,a\n"})
    assert table.schema.inputs == ("x",)
    assert "column 1 has no name in the header and was left out" in table.notes


# JSON lines


def test_json_lines_keep_their_types(opened: Any) -> None:
    lines = [
        '{"a": {"b": 1, "c": "1"}, "v": [1, 2.5], "y": true}',
        "",
        '{"a": {"b": 2.5, "c": "x"}, "v": [0, 1], "y": false}',
        '{"a": null, "v": null, "y": false}',
    ]
    table = opened({"a.jsonl": "\n".join(lines)}, missing="keep")
    found = opened.read(table)
    assert table.schema.inputs == ("a_b", "a_c", "v")
    assert (found["a_b"], found["a_b_missing"]) == ([1.0, 2.5, 0.0], [0, 0, 1])
    assert (found["a_c"], found["a_c_missing"]) == ([b"1", b"x", b""], [0, 0, 1])
    assert (found["v"], found["v_missing"]) == ([[1.0, 2.5], [0.0, 1.0], [0.0, 0.0]], [0, 0, 1])
    assert found["labels"] == ["true", "false", "false"]


def test_a_line_that_is_no_object_is_a_bad_row(opened: Any) -> None:
    good = '{"x": 1, "y": "a"}'
    bad = ["[1]", '{"x": 1,', '{"x": 1, "x": 2, "y": "a"}', '{"x": 1, "y": "\\ud800"}', "3", "{" * 100_000]
    table = opened({"a.jsonl": "\n".join([good, *bad, good])})
    assert [bad[0] for bad in opened.bad(table)] == [2, 3, 4, 5, 6, 7]
    assert all(bad[2].startswith("is not a JSON object: ") for bad in opened.bad(table))
    assert opened.read(table)["rows"] == [0, 7]


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
def test_json_that_would_have_to_be_converted_is_refused(opened: Any, lines: str, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        opened({"a.jsonl": lines})


def test_mixed_json_is_read_as_the_type_that_is_asked_for(opened: Any) -> None:
    lines = '{"x": 1, "y": 1}\n{"x": "2", "y": "1"}\n{"x": true, "y": 1}\n{"x": 2.0, "y": 1}'
    table = opened({"a.jsonl": lines}, types={"x": "int64", "y": "string"})
    assert opened.read(table)["x"] == [1, 2]
    assert opened.bad(table) == [(3, "x", "is 'true', not a whole number"), (4, "x", "is '2.0', not a whole number")]
    assert table.schema.label_map == ("1",)


# Files that do not agree


def test_files_of_different_schemas(opened: Any) -> None:
    one = pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]})
    same = pa.table({"y": pa.array(["b"]).dictionary_encode(), "x": pa.array([2], pa.int64())})
    empty = pa.table({"x": pa.nulls(1), "y": ["a"]})
    table = opened({"1.parquet": one, "2.parquet": same, "3.parquet": empty}, missing="keep")
    assert opened.read(table)["x"] == [1, 2, 0]
    assert table.schema.label_map == ("a", "b")
    other = pa.table({"x": [0.5], "y": ["b"]})
    with pytest.raises(ConfigError, match=r"'x' is int32 in 1\.parquet but double in 2\.parquet"):
        opened({"1.parquet": one, "2.parquet": other})
    assert opened.read(opened({"1.parquet": one, "2.parquet": other}, types={"x": "float64"}))["x"] == [1.0, 0.5]
    with pytest.raises(ConfigError, match=r"'x' of 1\.parquet is not in 2\.parquet"):
        opened({"1.parquet": one, "2.parquet": other.drop_columns(["x"])})
    with pytest.raises(ConfigError, match=r"1\.parquet is parquet but 2\.csv is csv"):
        opened({"1.parquet": one, "2.csv": "x,y\n1,a\n"})
    with pytest.raises(ConfigError, match=r"README\.md has no ending"):
        opened({"README.md": "hello"})


def test_labels_that_are_text_in_one_file_and_numbers_in_another_are_never_two_classes(
    opened: Any,
) -> None:
    files: Files = {"1.parquet": pa.table({"x": [1], "y": ["1"]}), "2.parquet": pa.table({"x": [1], "y": [1]})}
    with pytest.raises(ConfigError, match=r"'y' is string in 1\.parquet but int64 in 2\.parquet"):
        opened(files)
    assert opened(files, types={"y": "string"}).schema.label_map == ("1",)
    assert opened({"1.csv": "x,y\n1,1\n", "2.csv": "x,y\n1,1.0\n"}).schema.label_map == ("1",)


@pytest.mark.parametrize("cut", [0, 3, 100, -1])
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_damaged_file_is_named(opened: Any, tmp_path: Path, suffix: str, cut: int) -> None:
    opened({f"a.{suffix}": TABLE})
    data = (tmp_path / f"a.{suffix}").read_bytes()[:cut]
    with pytest.raises(DataError, match=rf"a\.{suffix}: cannot be read as"):
        list(opened({f"a.{suffix}": data}).read())


def test_a_cut_archive_of_a_csv_is_named(opened: Any) -> None:
    packed = gzip.compress(b"x,y\n" + b"1,a\n" * 1000)
    with pytest.raises(DataError, match=r"a\.csv\.gz: cannot be read"):
        list(opened({"a.csv.gz": packed[:-20]}).read())


def test_folders_named_column_value_add_the_column(opened: Any) -> None:
    table = pa.table({"x": [1], "y": ["a"]})
    files: Files = {
        f"year={year}/month={m}/a%20b={v}/p.parquet": table for year, m, v in [(25, "01", "u%2Fv"), (26, "12", "w")]
    }
    opened_table = opened(files)
    assert opened.read(opened_table)["year"] == [25, 26]
    assert opened.read(opened_table)["month"] == [b"01", b"12"]
    assert opened.read(opened_table)["a_20b"] == [b"u/v", b"w"]
    assert opened.read(opened(files, columns=["year"]))["year"] == [25, 26]
    missing: Files = {"k=1/p.parquet": table, "k=__HIVE_DEFAULT_PARTITION__/p.parquet": table}
    assert opened.read(opened(missing, missing="keep"))["k_missing"] == [0, 1]
    with pytest.raises(DataError, match="lies in folders of the columns"):
        opened({"k=1/p.parquet": table, "p.parquet": table})
    with pytest.raises(DataError, match="has a column 'x' and a folder x="):
        opened({"x=1/p.parquet": table})
