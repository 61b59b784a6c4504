"""Columns: each Arrow type has its rule, and each text is read as what it says."""

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.errors import ConfigError
from tasks.prepare.table import columns
from tasks.prepare.table.columns import RULES, convert, form_of
from tasks.prepare.table.literals import TypeInference, parse
from tasks.prepare.table.values import Values
from tasks.sources import ColumnType

DAY = 86_400_000_000
MAX = 2**63 - 1
NAN, INF = float("nan"), float("inf")


def _read(array: pa.Array, wanted: ColumnType | None = None, length: int | None = None) -> list[Any]:
    """The values, None where missing, the reason where bad."""
    form = form_of(array.type, wanted, "column 'c'")
    values = convert(array, wanted, length=length)
    if isinstance(values.values, np.ndarray):
        assert values.values.dtype == form.dtype
    return _plain(values)


def _plain(values: Values) -> list[Any]:
    found = values.values.tolist() if isinstance(values.values, np.ndarray) else values.values.to_pylist()
    return [
        values.bad.get(place, None if gone else value)
        for place, (value, gone) in enumerate(zip(found, values.missing, strict=True))
    ]


EXACT = [
    (pa.array([True, None, False]), "int64", [1, None, 0]),
    *[(pa.array([1, None, 0], t), "int64", [1, None, 0]) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())],
    *[(pa.array([1, None, 0], t), "int64", [1, None, 0]) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())],
    (pa.array([MAX, -(2**63), 9007199254740993]), "int64", [MAX, -(2**63), 9007199254740993]),
    (pa.array([MAX], pa.uint64()), "int64", [MAX]),
    (pa.array([1.5, None, NAN], pa.float16()), "float32", [1.5, None, None]),
    (pa.array([0.5, None, NAN], pa.float32()), "float32", [0.5, None, None]),
    (pa.array([0.1, None, NAN, -0.0]), "float64", [0.1, None, None, -0.0]),
    (pa.array([Decimal("0.10"), None], pa.decimal32(5, 2)), "float64", [0.1, None]),
    (pa.array([Decimal("1234567890123.45")], pa.decimal128(15, 2)), "float64", [1234567890123.45]),
    (pa.array([Decimal("0.3")], pa.decimal256(15, 1)), "float64", [0.3]),
    *[
        (pa.array(["ö", None, "", "NA"], t), "string", ["ö", None, "", "NA"])
        for t in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    ],
    (pa.RunEndEncodedArray.from_arrays([1, 3], ["a", "b"]), "string", ["a", "b", "b"]),
    (pa.array([3, None, 3]).dictionary_encode(), "int64", [3, None, 3]),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), "string", ["{}"]),
    (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())), "int64", [1, 0]),
    (pa.array([datetime.date(1970, 1, 3), None, datetime.date(1, 1, 1)]), "int64", [2, None, -719162]),
    (pa.array([2 * DAY // 1000], pa.int64()).cast(pa.date64()), "int64", [2]),
    *[
        (pa.array([n, None, -n], pa.timestamp(u, z)), "int64", [us, None, -us])
        for u, n, us in (("s", 2, 2_000_000), ("ms", 2, 2000), ("us", 2, 2), ("ns", 2000, 2))
        for z in (None, "UTC", "Europe/Berlin")
    ],
    (pa.array([1, None], pa.time32("ms")), "int64", [1000, None]),
    (pa.array([1000], pa.time64("ns")), "int64", [1]),
    (pa.array([-1, None], pa.duration("s")), "int64", [-1_000_000, None]),
]


@pytest.mark.parametrize(("array", "dtype", "expected"), EXACT, ids=lambda value: str(getattr(value, "type", "")))
def test_a_value_stays_what_it_is(array: pa.Array, dtype: str, expected: Sequence[Any]) -> None:
    form = form_of(array.type, None, "")
    assert form.dtype == dtype
    assert repr(_read(array)) == repr(expected)  # -0.0 is not 0.0
    shifted = pa.concat_arrays([array.slice(1), array.slice(0, 1)]).slice(1) if len(array) > 2 else array[:1]
    assert repr(_read(shifted)) == repr(expected[2:] + expected[:1] if len(array) > 2 else expected[:1])


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (pa.uint8(), "uint8"),
        (pa.bool_(), "uint8"),
        (pa.int8(), "int64"),
        (pa.float16(), "float32"),
        (pa.float32(), "float32"),
        (pa.float64(), "float64"),
        (pa.uint64(), "int64"),
    ],
)
def test_lists_of_numbers_are_tensors(kind: Any, element: pa.DataType, dtype: str) -> None:
    rows: list[Any] = [[1, 0], None, [1], [1, None], [0, 1], []]
    if pa.types.is_boolean(element):
        rows = [row if row is None else [None if value is None else value == 1 for value in row] for row in rows]
    array = pa.array(rows, kind(element))
    expected = [[1, 0], None, "has 1 values, not 2", "has a missing value in it", [0, 1], "has 0 values, not 2"]
    assert _read(array, length=2) == expected
    assert _read(array.slice(1, 4), length=2) == expected[1:5]
    assert form_of(array.type, None, "").dtype == dtype


def test_lists_of_a_fixed_size_and_tensors_keep_their_shape() -> None:
    lists = pa.array([[1, 2], None, [None, 1]], pa.list_(pa.int32(), 2))
    assert _read(lists, length=2) == [[1, 2], None, "has a missing value in it"]
    tensor = pa.fixed_shape_tensor(pa.int32(), [2, 2])
    array = pa.ExtensionArray.from_storage(tensor, pa.array([[1, 2, 3, 4], None], pa.list_(pa.int32(), 4)))
    assert form_of(tensor, None, "").shape == (2, 2)
    assert _read(array) == [[[1, 2], [3, 4]], None]


def test_values_in_lists_are_as_exact_as_others() -> None:
    bad = "has a value that is too large or not finite in it"
    assert _read(pa.array([[2**63, 1], [MAX, 1]], pa.list_(pa.uint64())), length=2) == [bad, [MAX, 1]]
    assert _read(pa.array([[INF, 1], [NAN, 1]]), length=2) == [bad, "has a missing value in it"]


OVER = "which int64 cannot hold; set the column's type in data.source.types to string or float64"
FAR = "is a time so far off that int64 microseconds cannot hold it"


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([2**63], pa.uint64()), f"is 9223372036854775808, {OVER}"),
        (pa.array([-INF]), "is -inf, not a finite number"),
        (pa.array([INF], pa.float16()), "is inf, not a finite number"),
        (pa.array([b"\xff"]).view(pa.string()), "is b'\\xff', not UTF-8"),
        (pa.array([b"\xff"], pa.large_binary()).view(pa.large_string()), "is b'\\xff', not UTF-8"),
        (pa.array([2**62], pa.timestamp("s")), FAR),
        (pa.array([-(2**62)], pa.duration("ms")), FAR),
        (
            pa.array([1001], pa.timestamp("ns")),
            "is 1001 nanoseconds, which microseconds cannot hold; to cut them, set the column's type in "
            "data.source.types to timestamp",
        ),
        (pa.array([1], pa.int64()).cast(pa.date64(), safe=False).view(pa.date64()), None),
    ],
)
def test_a_value_that_would_change_is_bad(array: pa.Array, reason: str | None) -> None:
    if reason is None:
        array = pa.array([1]).view(pa.date64())
        reason = "is not a whole day"
    assert _read(array) == [reason]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([b"a"]),
        pa.array([b"a"], pa.binary(1)),
        pa.array([b"a"], pa.binary_view()),
        pa.array([{"a": 1}], pa.map_(pa.string(), pa.int64())),
        pa.array([["a"]]),
        pa.array([[[1]]]),
        pa.array([[{"a": 1}]]),
        pa.array([Decimal(1)], pa.decimal128(16)),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.nulls(1),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
        pa.array([{}], pa.struct([])),
    ],
    ids=lambda array: str(array.type),
)
def test_a_type_without_a_rule_is_refused_with_the_fix(array: pa.Array) -> None:
    with pytest.raises(ConfigError, match=r"leave it out with data\.source\.columns"):
        form_of(array.type, None, "column 'c'")


@pytest.mark.parametrize(
    ("array", "wanted", "expected"),
    [
        (pa.array([2**63], pa.uint64()), "string", ["9223372036854775808"]),
        (pa.array([2**63 + 1], pa.uint64()), "float64", [2.0**63]),
        (pa.array([0, 1, 2]), "bool", [0, 1, "is 2, not 0 or 1"]),
        (pa.array([1.0, 1.5, NAN]), "int64", [1, "is 1.5, not a whole number that int64 can hold", None]),
        (pa.array([2.0**63]), "int64", ["is 9.223372036854776e+18, not a whole number that int64 can hold"]),
        (pa.array([0.1, 1e300]), "float32", [float(np.float32(0.1)), "is 1e+300, not a finite number"]),
        (pa.array([0.1], pa.float32()), "float64", [float(np.float32(0.1))]),
        (pa.array([0.1, NAN]), "string", ["0.1", None]),
        (pa.array([True]), "string", ["true"]),
        (pa.array([Decimal("12345678901234567890.10")], pa.decimal128(22, 2)), "string", ["12345678901234567890.10"]),
        (
            pa.array([Decimal("1.50"), Decimal("2.00")], pa.decimal128(20, 2)),
            "int64",
            ["is '1.50', not a whole number", 2],
        ),
        (pa.array([Decimal("0.1")], pa.decimal128(20, 1)), "float64", [0.1]),
        (pa.array([b"\xc3\xb6", b"\xff", None]), "string", ["ö", "is b'\\xff', not UTF-8", None]),
        (pa.array([1999], pa.timestamp("ns")), "timestamp", [1]),
        (pa.array([-1], pa.duration("ns")), "int64", [-1]),
        (pa.array([datetime.date(1970, 1, 2)]), "timestamp", [DAY]),
        (pa.array([DAY, 1], pa.timestamp("us")), "date", [1, "is not at midnight UTC, so that it is no date"]),
        (pa.array(["1", "x", None]), "int64", [1, "is 'x', not a whole number", None]),
        (pa.array(["a", b"\xff".decode("latin-1")]).dictionary_encode(), "string", ["a", "ÿ"]),
    ],
)
def test_a_type_that_was_asked_for_is_given_or_the_row_is_bad(
    array: pa.Array, wanted: ColumnType, expected: list[Any]
) -> None:
    assert _read(array, wanted) == expected


def test_a_type_that_cannot_be_given_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^column 'c' is int64, which cannot be read as date; set its type"):
        form_of(pa.int64(), "date", "column 'c'")
    with pytest.raises(ConfigError, match="cannot be read as float32"):
        form_of(pa.list_(pa.float64()), "float32", "column 'c'")


@pytest.mark.parametrize(
    ("wanted", "texts", "expected"),
    [
        (
            "int64",
            [" 7 ", "007", "+7", "-7", "1.0", "0x7", "7_0", "", "\u0667"],
            [7, 7, 7, -7, *["not a whole number"] * 5],
        ),
        ("int64", [str(MAX), str(MAX + 1), "-" + str(MAX + 2)], [MAX, OVER, OVER]),
        (
            "float64",
            ["0.1", ".5", "5.", "1e-3", "-0", "1,5", "NaN"],
            [0.1, 0.5, 5.0, 0.001, -0.0, "not a number", None],
        ),
        ("float64", ["inf", "-Infinity", "1e999", "9007199254740993"], [*["not a finite number"] * 3, 2.0**53]),
        ("float32", ["0.1", "1e39"], [float(np.float32("0.1")), "not a finite number"]),
        ("bool", ["true", "FALSE", "1", "0", "yes"], [1, 0, 1, 0, "not true or false"]),
        ("date", ["1970-01-02", "2026-02-30", "2026-1-1", "1970-01-02T00:00"], [1, *["not a date"] * 3]),
        ("timestamp", ["1970-01-02", "1970-01-01T00:00:01", "1970-01-01 00:00:00.000001"], [DAY, 1_000_000, 1]),
        ("timestamp", ["1970-01-01T01:00+01:00", "1970-01-01 00:00:00.0000019Z"], [0, 1]),
        ("timestamp", ["2026-01-31T25:00", "31.01.2026", "1970-01-01T00:00:00+99:00"], ["not a time"] * 3),
    ],
)
def test_texts_are_read_as_they_are_written(wanted: ColumnType, texts: list[str], expected: list[Any]) -> None:
    for value, hope in zip(_plain(parse(pa.array(texts), wanted)), expected, strict=True):
        assert hope in value if isinstance(hope, str) else repr(value) == repr(hope)


def test_a_decimal_comma_is_read_and_a_point_is_then_no_number() -> None:
    assert _plain(parse(pa.array(["1,5", "1.5"]), "float64", ",")) == [1.5, "is '1.5', not a number"]


def _inference(*batches: Sequence[str | None], decimal_point: str = ".") -> TypeInference:
    inference = TypeInference(decimal_point)
    for number, texts in enumerate(batches):
        inference.add(pa.array(texts, pa.string()), lambda i, n=number, t=texts: f"{t[i]!r} at {n}:{i}")  # type: ignore[misc]
    return inference


@pytest.mark.parametrize(
    ("batches", "type"),
    [
        ([[None], ["1"], ["2.5"]], "float64"),
        ([["1", "-2"], [None, "0"]], "int64"),
        ([["1"], ["nan"]], "float64"),
        ([["1e3"]], "float64"),
        ([["true", "False"]], "bool"),
        ([["2026-01-31"]], "date"),
        ([["2026-01-31"], ["2026-01-31T12:00Z"]], "timestamp"),
        ([["02139", "10001"]], "string"),
        ([["+491234", "0176"]], "string"),
        ([["a"], ["1"]], "string"),
        ([["2026-02-30"]], "string"),
        ([[None]], "string"),
        ([[str(MAX)]], "int64"),
    ],
)
def test_the_narrowest_type_holds_for_the_whole_column(batches: list[list[str | None]], type: ColumnType) -> None:
    assert _inference(*batches).type("c") == type


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (
            [["1", "2", "3"], ["4", "NA"]],
            r"'c' holds numbers but for 1 of 5 values, such as 'NA' at 1:1; add to data\.source\.null_tokens",
        ),
        ([["true", "false", "-"]], r"holds true and false but for 1 of 3 values, such as '-'"),
        ([["2026-01-01", "2026-01-02", "soon"]], r"holds dates or times but for 1 of 3 values, such as 'soon'"),
        (
            [["1", str(MAX + 1)]],
            r"holds whole numbers, of which int64 cannot hold '9223372036854775808' at 0:1 exactly",
        ),
        ([["9007199254740993"], ["0.5"]], r"of which float64 cannot hold '9007199254740993' at 0:0 exactly"),
        ([["2026-01-01T00:00:00.0000001"]], r"of which timestamp cannot hold .* string\} or timestamp"),
    ],
)
def test_a_value_that_would_be_lost_is_refused_with_its_place(batches: list[list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _inference(*batches).type("c")


def test_the_readme_has_every_rule() -> None:
    readme = (Path(columns.__file__).parent / "README.md").read_text()
    for rule in RULES:
        otherwise = ", ".join(rule.wanted)
        assert f"| {rule.types} | {rule.becomes} | {otherwise} |" in readme
