"""Columns: the rule by which a column of each Arrow type becomes the values of a feature."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.manifest import INT64, Dtype
from tasks.prepare.table.literals import FLOATS, NOT_FINITE, OVER_INT64, parse
from tasks.prepare.table.values import Mask, Values, as_mask, nulls, reasons
from tasks.prepare.wording import shown
from tasks.sources import ColumnType

Meaning = Literal["int", "float", "bool", "text", "date", "timestamp", "time", "duration", "list", "nothing"]
_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}
_MS_A_DAY = 86_400_000


@dataclass(frozen=True)
class Form:
    """What a column becomes; a column has the same form in all files of a table."""

    meaning: Meaning
    dtype: Dtype
    """Of the feature."""
    shape: tuple[int, ...] | None = ()
    """Of a value; None: a list whose length is the one that most rows have."""


@dataclass(frozen=True)
class Rule:
    """What becomes of some Arrow types."""

    types: str
    """The types, for people."""
    becomes: str
    """What becomes of them, for people."""
    covers: Callable[[pa.DataType], bool]
    form: Form | None = None
    """None: the column is refused, unless one of `wanted` is given as its type."""
    wanted: tuple[ColumnType, ...] = ()
    """The types that data.source.types may give instead."""


def form_of(type: pa.DataType, wanted: ColumnType | None, where: str) -> Form:
    """Returns what a column of an Arrow type becomes, or of the type `wanted` if that is given.

    Raises ConfigError, which begins with `where`, if there is no rule, or none that makes `wanted` of it.
    """
    type = plain(type)
    rule = _rule(type)
    if wanted in rule.wanted:
        return _WANTED[wanted]
    fixes = ["leave it out with data.source.columns"]
    if rule.wanted:
        fixes.insert(0, f"set its type in data.source.types ({', '.join(rule.wanted)})")
    if wanted is not None:
        raise ConfigError(f"{where} is {type}, which cannot be read as {wanted}; {', or '.join(fixes)}")
    if rule.form is None:
        raise ConfigError(f"{where} is {type}, which has no rule ({rule.becomes}); {', or '.join(fixes)}")
    if rule.form.meaning == "list":
        return Form("list", _element(type), _tensor_shape(type))
    return rule.form


def convert(  # noqa: PLR0911 - one a family of types
    array: pa.Array, wanted: ColumnType | None, *, length: int | None = None, decimal_point: str = "."
) -> Values:
    """Returns the values of a column by the rule of its type; `form_of` has accepted type and `wanted`.

    Lists become [n, length] and all others are bad. Numbers in text are written with `decimal_point`.
    """
    array = _decoded(array)
    meaning = form_of(array.type, wanted, "").meaning
    if meaning == "list":
        return _lists(array, length)
    if is_.is_binary(array.type):
        return _utf8(array)
    if is_.is_string(array.type):
        checked = _utf8(array.view(pa.binary()))
        parsed = parse(checked.values, wanted or "string", decimal_point)
        parsed.missing[list(checked.bad)] = False
        return Values(parsed.values, parsed.missing, parsed.bad | checked.bad)
    if wanted == "string":
        return Values(_as_text(array), as_mask(pc.is_null(array, nan_is_null=True)), {})
    if is_.is_decimal(array.type):
        return parse(_as_text(array, whole=wanted in ("int64", "bool")), wanted or "float64")
    if is_.is_temporal(array.type):
        return _times(array, wanted)
    return _numbers(array, wanted)


def plain(type: pa.DataType) -> pa.DataType:
    """Returns the type of the values behind extension types, dictionaries and run-end encoding."""
    if isinstance(type, pa.BaseExtensionType) and not isinstance(type, pa.FixedShapeTensorType):
        return plain(type.storage_type)
    if is_.is_dictionary(type) or is_.is_run_end_encoded(type):
        return plain(type.value_type)
    return type


def is_text(type: pa.DataType) -> bool:
    """Returns whether a column of the type holds text."""
    type = plain(type)
    return is_.is_string(type) or is_.is_large_string(type) or is_.is_string_view(type)


def lengths_of(array: pa.Array) -> pa.Array:
    """Returns how many values each list of a column of lists has, int64 [n]; null where there is no list."""
    array = _decoded(array)
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    return pc.list_value_length(storage).cast(pa.int64())


def _rule(type: pa.DataType) -> Rule:
    return next(rule for rule in RULES if rule.covers(type))


def _is_list(type: pa.DataType) -> bool:
    return (
        is_.is_list(type)
        or is_.is_large_list(type)
        or is_.is_fixed_size_list(type)
        or is_.is_list_view(type)
        or is_.is_large_list_view(type)
    )


def _is_tensor(type: pa.DataType) -> bool:
    if isinstance(type, pa.FixedShapeTensorType):
        return type.permutation in (None, list(range(len(type.shape)))) and _is_tensor(type.storage_type)
    return _is_list(type) and (
        is_.is_integer(type.value_type) or is_.is_floating(type.value_type) or is_.is_boolean(type.value_type)
    )


def _element(type: pa.DataType) -> Dtype:
    value = type.value_type
    if is_.is_uint8(value) or is_.is_boolean(value):
        return "uint8"
    if is_.is_integer(value):
        return "int64"
    return "float64" if is_.is_float64(value) else "float32"


def _tensor_shape(type: pa.DataType) -> tuple[int, ...] | None:
    return tuple(type.shape) if isinstance(type, pa.FixedShapeTensorType) else None


def _decoded(array: pa.Array) -> pa.Array:
    """Returns an array without what only says how it is stored, strings and bytes with offsets of 32 bits."""
    while True:
        if isinstance(array, pa.FixedShapeTensorArray):
            return array
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif is_.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif is_.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif is_.is_large_string(array.type) or is_.is_string_view(array.type):
            array = array.cast(pa.large_binary() if is_.is_large_string(array.type) else pa.binary_view())
            array = array.cast(pa.binary()).view(pa.string())  # a cast to string would stop at what is not UTF-8
        elif is_.is_large_binary(array.type) or is_.is_binary_view(array.type) or is_.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        else:
            return array


def _utf8(array: pa.Array) -> Values:
    """Returns bytes as text."""
    try:
        return Values(array.cast(pa.string()), nulls(array), {})
    except pa.ArrowInvalid:
        fits = np.array([value is None or _is_utf8(value) for value in array.to_pylist()], bool)
    text = pc.if_else(pa.array(fits), array, pa.scalar(None, pa.binary())).cast(pa.string())
    return Values(text, nulls(array), reasons(~fits, lambda place: f"is {shown(array[place].as_py())}, not UTF-8"))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(array: pa.Array, *, whole: bool = False) -> pa.Array:
    if is_.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    if is_.is_float16(array.type):
        array = array.cast(pa.float32())
    text = array.cast(pa.string())
    return pc.replace_substring_regex(text, r"\.0*$", "") if whole else text


def _numbers(array: pa.Array, wanted: ColumnType | None) -> Values:
    """Returns bools, integers and floats as numbers, float16 as float32."""
    missing = nulls(array)
    if is_.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if is_.is_float16(array.type):
        array = array.cast(pa.float32())
    given = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    if given.dtype.kind == "f":
        missing |= np.isnan(given)
        given = np.where(missing, 0, given) if missing.any() else given
    dtype = "int64" if wanted == "bool" else wanted or ("int64" if given.dtype.kind in "iu" else given.dtype.name)
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is found below
        values = given.astype(dtype, copy=False)
    if wanted == "bool":
        bad, what = (given != 0) & (given != 1), "not 0 or 1"
    elif dtype in FLOATS:
        bad, what = ~np.isfinite(values), NOT_FINITE
    elif given.dtype.kind == "f":
        inside = np.abs(given) < 2.0**63
        bad, what = ~inside | (np.where(inside, given, 0) % 1 != 0), "not a whole number that int64 can hold"
    else:
        bad, what = given > np.uint64(INT64[-1]) if given.dtype == np.uint64 else np.zeros(len(given), bool), OVER_INT64
    values = np.where(bad, 0, values).astype(dtype) if bad.any() else values
    return Values(values, missing, reasons(bad, lambda place: f"is {given[place]}, {what}"))


def _times(array: pa.Array, wanted: ColumnType | None) -> Values:
    """Returns days or microseconds, int64; naive times are UTC."""
    missing, type = nulls(array), array.type
    bits = pa.int32() if is_.is_date32(type) or is_.is_time32(type) else pa.int64()
    given = pc.fill_null(array.view(bits), 0).to_numpy().astype(np.int64, copy=False)
    if is_.is_date(type):
        days = given if is_.is_date32(type) else given // _MS_A_DAY
        if wanted == "timestamp":
            return _scaled(days, _MS_A_DAY * 1000, missing)
        bad = np.zeros(len(given), bool) if is_.is_date32(type) else given % _MS_A_DAY != 0
        return Values(days, missing, reasons(bad, lambda _: "is not a whole day"))
    fraction = given % 1000 != 0 if type.unit == "ns" else np.zeros(len(given), bool)
    if type.unit == "ns":
        cut = "timestamp" if is_.is_timestamp(type) else "int64"
        bad = reasons(
            fraction if wanted is None else np.zeros(len(given), bool),
            lambda place: (
                f"is {given[place]} nanoseconds, which microseconds cannot hold; to cut them, set the "
                f"column's type in data.source.types to {cut}"
            ),
        )
        values = Values(given // 1000, missing, bad)
    else:
        values = _scaled(given, _MICROSECONDS[type.unit], missing)
    if wanted != "date":
        return values
    midnight = (values.values % (_MS_A_DAY * 1000) == 0) & ~fraction
    return Values(
        values.values // (_MS_A_DAY * 1000),
        missing,
        reasons(~midnight & ~missing, lambda _: "is not at midnight UTC, so that it is no date") | values.bad,
    )


def _scaled(given: NDArray[np.int64], factor: int, missing: Mask) -> Values:
    bad = np.abs(given.astype(np.float64)) > INT64[-1] // factor
    values = np.where(bad, 0, given) * factor
    return Values(
        values, missing, reasons(bad, lambda _: "is a time so far off that int64 microseconds cannot hold it")
    )


def _lists(array: pa.Array, length: int | None) -> Values:
    """Returns lists of `length` numbers as [n, length], a tensor of Arrow's own in its shape."""
    shape = _tensor_shape(array.type)
    dtype = _element(array.type)
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    length = int(np.prod(shape)) if shape is not None else length
    assert length is not None, "the length of lists was not found"
    lengths = lengths_of(storage)
    missing = nulls(storage)
    fits = as_mask(pc.equal(lengths, length))
    bad = reasons(~fits & ~missing, lambda place: f"has {lengths[place]} values, not {length}")
    elements = _numbers(pc.list_flatten(storage.filter(pa.array(fits))), None)
    places = np.flatnonzero(fits)
    for kind, wrong in (
        ("a missing value", np.flatnonzero(elements.missing)),
        ("a value that is too large or not finite", np.fromiter(elements.bad, np.int64)),
    ):
        for place in np.unique(places[wrong // max(length, 1)]):
            bad[int(place)] = f"has {kind} in it"
    values: NDArray[Any] = np.zeros((len(storage), length), dtype)
    values[fits] = elements.values.reshape(-1, length).astype(dtype)
    return Values(values.reshape(len(storage), *(shape or (length,))), missing, bad)


_NUMBERS: tuple[ColumnType, ...] = ("int64", "float32", "float64", "bool", "string")
_WANTED: dict[ColumnType, Form] = {
    "int64": Form("int", "int64"),
    "float32": Form("float", "float32"),
    "float64": Form("float", "float64"),
    "bool": Form("bool", "int64"),
    "string": Form("text", "string"),
    "date": Form("date", "int64"),
    "timestamp": Form("timestamp", "int64"),
}

RULES = (
    Rule("bool", "number, int64: 0 or 1", is_.is_boolean, _WANTED["bool"], _NUMBERS),
    Rule(
        "int8 to int64, uint8 to uint64",
        "number, int64; over the largest int64: bad",
        is_.is_integer,
        _WANTED["int64"],
        _NUMBERS,
    ),
    Rule(
        "float16, float32",
        "number, float32; NaN is missing, infinite is bad",
        lambda type: is_.is_float16(type) or is_.is_float32(type),
        _WANTED["float32"],
        _NUMBERS,
    ),
    Rule("float64", "number, float64; NaN is missing, infinite is bad", is_.is_float64, _WANTED["float64"], _NUMBERS),
    Rule(
        "decimal32 to decimal256 of at most 15 digits",
        "number, the nearest float64",
        lambda type: is_.is_decimal(type) and type.precision <= 15,
        _WANTED["float64"],
        _NUMBERS,
    ),
    Rule("decimals of more digits", "refused: float64 would lose digits", is_.is_decimal, None, _NUMBERS),
    Rule(
        "string, large_string, string_view",
        "category, or text if named in `text`; stored as UTF-8",
        is_text,
        _WANTED["string"],
        (*_NUMBERS, "date", "timestamp"),
    ),
    Rule(
        "binary, large_binary, binary_view, fixed_size_binary (and uuid)",
        "refused: bytes may mean anything; as string they are UTF-8",
        lambda type: (
            is_.is_binary(type)
            or is_.is_large_binary(type)
            or is_.is_binary_view(type)
            or is_.is_fixed_size_binary(type)
        ),
        None,
        ("string",),
    ),
    Rule(
        "date32, date64",
        "number, int64: days since 1970-01-01",
        is_.is_date,
        _WANTED["date"],
        ("date", "timestamp", "int64", "string"),
    ),
    Rule(
        "timestamp",
        "number, int64: microseconds since 1970 UTC, without a zone taken as UTC; nanoseconds that would be cut: bad",
        is_.is_timestamp,
        _WANTED["timestamp"],
        ("timestamp", "date", "int64", "string"),
    ),
    Rule(
        "time32, time64",
        "number, int64: microseconds since midnight; nanoseconds that would be cut: bad",
        is_.is_time,
        Form("time", "int64"),
        ("int64",),
    ),
    Rule(
        "duration",
        "number, int64: microseconds; nanoseconds that would be cut: bad",
        is_.is_duration,
        Form("duration", "int64"),
        ("int64",),
    ),
    Rule(
        "list, large_list, fixed_size_list, list_view of bools, integers or floats",
        "tensor [n] of uint8 (bool, uint8), int64, float32 or float64; n is the length of most rows, another length "
        "or a missing value inside: bad",
        _is_tensor,
        Form("list", "float32", None),
    ),
    Rule("null", "refused: it holds no value", is_.is_null, None),
    Rule("lists of anything else", "refused: only numbers and bools make a tensor", _is_list, None),
    Rule("map, union, interval, and tensors in another order of axes", "refused", lambda _: True, None),
)
"""Every Arrow type has its rule here, the first that covers it. Structs are flattened to `a.b` before; dictionaries,
run-end encoded and extension types go by the type of their values, fixed_shape_tensor as a list with its own shape."""
