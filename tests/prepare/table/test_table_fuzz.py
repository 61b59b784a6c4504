"""Random tables: every value arrives as plain Python says it must, or a MillstreamError says why not."""

import contextlib
import csv
import datetime
import io
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather

from tasks.config import DataConfig
from tasks.errors import MillstreamError
from tasks.prepare.table.table import Table, open_table

few = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

MISSING, BAD = "missing", "bad"
INT64 = range(-(2**63), 2**63)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=6)


def _number(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, float):
        return value if math.isfinite(value) else BAD
    return int(value) if int(value) in INT64 else BAD


def _microseconds(numerator: int, denominator: int = 1) -> Callable[[int | None], Any]:
    def expected(value: int | None) -> Any:
        if value is None:
            return MISSING
        exact = value * numerator % denominator == 0 and value * numerator // denominator in INT64
        return value * numerator // denominator if exact else BAD

    return expected


def _pair(value: Sequence[Any] | None) -> Any:
    if value is None:
        return MISSING
    return BAD if any(_number(each) in (MISSING, BAD) for each in value) else list(value)


def _text(value: str | None) -> Any:
    return MISSING if value is None else value.encode()


_ints = st.integers(-(2**63), 2**63 - 1)
# Arrow type, its values, what they must become, and the type that pyarrow takes them as.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any], pa.DataType | None]] = [
    (pa.bool_(), st.booleans(), _number, None),
    *[
        (pa.type_for_alias(f"int{bits}"), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), _number, None)
        for bits in (8, 16, 32, 64)
    ],
    *[(pa.type_for_alias(f"uint{bits}"), st.integers(0, 2**bits - 1), _number, None) for bits in (8, 16, 32, 64)],
    (pa.float16(), st.floats(width=16), _number, None),
    (pa.float32(), st.floats(width=32), _number, None),
    (pa.float64(), st.floats(), _number, None),
    (pa.decimal128(9, 3), st.decimals(-999999, 999999, places=3), lambda v: MISSING if v is None else float(v), None),
    (pa.string(), _TEXT, _text, None),
    (pa.large_string(), _TEXT, _text, None),
    (pa.dictionary(pa.int8(), pa.string()), _TEXT, _text, None),
    (pa.date32(), st.dates(), lambda v: MISSING if v is None else v.toordinal() - 719163, None),
    (pa.timestamp("ms"), _ints, _microseconds(1000), pa.int64()),
    (pa.timestamp("us", "UTC"), _ints, _microseconds(1), pa.int64()),
    (
        pa.timestamp("ns"),
        st.one_of(_ints, st.integers(-(10**9), 10**9).map(lambda v: v * 1000)),
        _microseconds(1, 1000),
        pa.int64(),
    ),
    (pa.duration("s"), _ints, _microseconds(1_000_000), pa.int64()),
    (pa.time32("ms"), st.integers(0, 86_399_999), _microseconds(1000), pa.int32()),
    (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), min_size=2, max_size=2), _pair, None),
    (pa.list_(pa.int16(), 2), st.lists(st.none() | st.integers(-9, 9), min_size=2, max_size=2), _pair, None),
]


@st.composite
def _typed(draw: st.DrawFn) -> tuple[pa.Table, dict[str, list[Any]]]:
    """A table with a target `y`, and what its columns must become."""
    num_rows = draw(st.integers(1, 8))
    columns: dict[str, pa.Array] = {}
    expected: dict[str, list[Any]] = {}
    for index, kind in enumerate(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))):
        type, value, becomes, by = kind
        values = draw(st.lists(st.none() | value, min_size=num_rows, max_size=num_rows))
        array = pa.array(values, by).view(type) if by is not None else pa.array(values, type)
        if draw(st.booleans()):
            columns[f"s{index}"] = pa.StructArray.from_arrays([array], ["leaf"])
            expected[f"s{index}_leaf"] = list(map(becomes, values))
        else:
            columns[f"c{index}"] = array
            expected[f"c{index}"] = list(map(becomes, values))
    target = draw(st.lists(st.none() | st.sampled_from(["a", "b", "10", "9"]), min_size=num_rows, max_size=num_rows))
    columns["y"] = pa.array(target, pa.string())
    expected["y"] = [MISSING if value is None else value for value in target]
    return pa.table(columns), expected


def _open(data: bytes, file: str, **source: Any) -> tuple[Table, dict[str, list[Any]], list[int], list[int]]:
    """The opened table, its features and labels by column, the good rows and the bad ones."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file).write_bytes(data)
        config = DataConfig.model_validate({"source": {"kind": "table", "path": folder, "target": "y"} | source})
        table = open_table(config, Path(folder), [file])
        batches = list(table.read())
    found: dict[str, list[Any]] = {
        name: [v for batch in batches for v in _list(batch.columns[name])] for name in table.schema.features
    }
    found["y"] = [table.schema.label_map[label] for batch in batches for label in batch.labels]
    good = [row for batch in batches for row in batch.rows.tolist()]
    bad = [example.row - 1 for batch in batches for example in batch.bad if example.row is not None]
    assert sorted(good + bad) == list(range(len(good) + len(bad)))
    return table, found, good, bad


def _list(column: Any) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


def _with_marks(table: Table, found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns with MISSING where they are marked; there they must be 0 or empty."""
    whole = {"y": found["y"]}
    for name in table.schema.inputs:
        mark = table.schema.features[name].missing
        marks = found[mark] if mark is not None else [0] * len(found[name])
        assert not any(np.any(value) for value, gone in zip(found[name], marks, strict=True) if gone and value != b"")
        whole[name] = [MISSING if gone else value for value, gone in zip(found[name], marks, strict=True)]
    return whole


@few
@given(_typed(), st.sampled_from(["parquet", "feather"]))
def test_a_random_table_of_any_types_arrives_as_it_is(
    drawn: tuple[pa.Table, dict[str, list[Any]]], suffix: str
) -> None:
    arrow, expected = drawn
    data = io.BytesIO()
    (pq.write_table if suffix == "parquet" else feather.write_feather)(arrow, data)
    no_value = any(all(value == MISSING for value in values) for values in expected.values())
    try:
        table, found, good, bad = _open(data.getvalue(), f"a.{suffix}", missing="keep")
    except MillstreamError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert no_value or "apache/arrow#35692" in refused
        return
    assert not no_value
    inputs = [name for name in expected if name != "y"]
    for row in range(len(arrow)):
        is_bad = expected["y"][row] == MISSING or any(expected[name][row] == BAD for name in inputs)
        assert (row in bad) == is_bad
    for name, values in _with_marks(table, found).items():
        assert repr(values) == repr([expected[name][row] for row in good])


_CELLS = st.one_of(
    st.integers(-5, 5).map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.booleans().map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.sampled_from(["", "NA", " ", " 1", "007", "+1", "1,5", '"', "a\nb", "ä", "1e5", "nan", "2026-02-30", "0x1"]),
    _TEXT.filter(lambda text: "\r" not in text and "\0" not in text),
)


def _meanings(text: str) -> list[Any]:
    """All that a cell may become: a number, a truth value, days, microseconds, its text."""
    stripped, found = text.strip(" \t\n\r\v\f"), [text.encode()]
    for read in (int, float, lambda t: {"true": 1, "false": 0}[t.lower()], _days, _micros):
        try:
            found.append(read(stripped))
        except (ValueError, KeyError):
            continue
    return found


def _days(text: str) -> int:
    return datetime.date.fromisoformat(text).toordinal() - 719163


def _micros(text: str) -> int:
    gone = datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)
    return gone // datetime.timedelta(microseconds=1)


@few
@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_a_random_csv_arrives_as_it_is(data: st.DataObject, num_columns: int, num_rows: int) -> None:
    columns = [
        data.draw(
            st.lists(
                data.draw(st.sampled_from([_CELLS, st.integers(0, 9).map(str)])), min_size=num_rows, max_size=num_rows
            )
        )
        for _ in range(num_columns)
    ]
    text = io.StringIO()
    writer = csv.writer(text, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    names = [f"c{index}" for index in range(num_columns)]
    writer.writerow([*names, "y"])
    writer.writerows([*row, "u"] for row in zip(*columns, strict=True))
    try:
        table, found, good, bad = _open(text.getvalue().encode(), "a.csv", missing="keep", null_tokens=["", "NA"])
    except MillstreamError:
        return
    for name, cells in zip(names, columns, strict=True):
        values = _with_marks(table, found)[name]
        for row, value in zip(good, values, strict=True):
            stripped = cells[row].strip(" \t\n\r\v\f")
            gone = stripped in ("", "NA") or (
                table.schema.features[name].dtype == "float64" and stripped.lower().endswith("nan")
            )
            assert value == MISSING if gone else any(repr(value) == repr(each) for each in _meanings(cells[row]))
    assert all(any("inf" in column[row].lower() or "e" in column[row] for column in columns) for row in bad)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | _TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("ab"), below, max_size=2),
    max_leaves=4,
)


@few
@given(
    st.lists(
        st.fixed_dictionaries({"y": st.just("u")}, optional={"x": st.none() | st.integers(0, 9), "z": _JSON}),
        min_size=1,
        max_size=5,
    )
)
def test_random_json_lines_arrive_as_they_are(rows: list[dict[str, Any]]) -> None:
    try:
        table, found, good, _ = _open(
            "".join(json.dumps(row) + "\n" for row in rows).encode(), "a.jsonl", missing="keep"
        )
    except MillstreamError:
        return
    whole = _with_marks(table, found)
    for name in {"x", "z"} & whole.keys():
        for row, value in zip(good, whole[name], strict=True):
            given_value = rows[row].get(name)
            if isinstance(given_value, str):
                assert value == given_value.encode()
            elif isinstance(given_value, list):
                assert value == given_value
            else:
                assert value == _number(given_value)


@few
@given(st.data(), st.sampled_from(["a.parquet", "a.feather", "a.csv", "a.jsonl"]))
def test_a_file_with_changed_bytes_never_ends_in_a_traceback(data: st.DataObject, file: str) -> None:
    arrow = pa.table({"x": [1, 2, 3], "t": ["a", 'b"', None], "y": ["u", "v", "u"]})
    buffer = io.BytesIO()
    if file == "a.parquet":
        pq.write_table(arrow, buffer)
    elif file == "a.feather":
        feather.write_feather(arrow, buffer)
    elif file == "a.csv":
        buffer.write(b'x,t,y\n1,a,u\n2,"b""",v\n3,,u\n')
    else:
        buffer.write("".join(json.dumps(row) + "\n" for row in arrow.to_pylist()).encode())
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    with contextlib.suppress(MillstreamError):
        _open(bytes(content[:cut]), file, missing="keep")


def test_the_pure_expectation_is_itself_right() -> None:
    assert _number(2**63) == BAD
    assert _microseconds(1, 1000)(1001) == BAD
    assert float(Decimal("0.1")) in _meanings("0.1")
