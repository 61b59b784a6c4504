"""Literals: numbers, truth values and times written as text, and the type that a whole column of them has."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.table.values import Mask, Values, as_mask, nulls, reasons
from tasks.prepare.wording import shown
from tasks.sources import ColumnType

OVER_INT64 = "which int64 cannot hold; set the column's type in data.source.types to string or float64"
FLOATS = ("float32", "float64")
NOT_FINITE = "not a finite number"

# What a type asks for may be written in more ways than what is guessed: 007 is a number only to one who says so.
_NAN = r"(?i)^[+-]?nan$"
_INF = r"(?i)^[+-]?inf(inity)?$"
_INT = r"^[+-]?\d+$"
_FLOAT = r"^[+-]?(\d+(POINT\d*)?|POINT\d+)([eE][+-]?\d+)?$"
_BOOL = r"(?i)^(true|false|0|1)$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_ZONE = r"(Z|[+-]\d{2}(:?\d{2})?)"
_TIMESTAMP = rf"^\d{{4}}-\d{{2}}-\d{{2}}([T ]\d{{2}}:\d{{2}}(:\d{{2}}(\.\d{{1,9}})?)?{_ZONE}?)?$"
_GUESSED_INT = r"^-?(0|[1-9]\d*)$"
_GUESSED_FLOAT = r"^[+-]?((0|[1-9]\d*)(POINT\d*)?|POINT\d+)([eE][+-]?\d+)?$"
_GUESSED_BOOL = r"(?i)^(true|false)$"
_NARROWEST: tuple[ColumnType, ...] = ("int64", "float64", "bool", "date", "timestamp")
_MEANS = {
    "int64": "a whole number",
    "float32": "a number",
    "float64": "a number",
    "bool": "true or false",
    "date": "a date such as 2026-01-31",
    "timestamp": "a time such as 2026-01-31T12:00:00",
}
_MANY = {"int64": "whole numbers", "float64": "numbers", "bool": "true and false", "timestamp": "dates or times"}
_CODE = r"^(\+\d+|0\d+)$"  # of digits, but no number: a zip code, a telephone number
_MORE_THAN_MICROSECONDS = r"\.\d{6}\d*[1-9]\d*"


def parse(texts: pa.Array, wanted: ColumnType, decimal_point: str = ".") -> Values:
    """Returns texts [n] read as a type: int64, float32, float64; bool as 0 or 1; date and timestamp as in `columns`.

    Blanks around a number, a truth value or a time do not count. `nan` is a missing value of a float. Digits of a time
    beyond microseconds are cut. What does not fit the type is bad.
    """
    missing = nulls(texts)
    if wanted == "string":
        return Values(texts, missing, {})
    trimmed = pc.ascii_trim_whitespace(texts)
    if wanted in FLOATS:
        missing |= matches(trimmed, _NAN)
        written = trimmed if decimal_point == "." else pc.replace_substring(trimmed, decimal_point, ".")
        numbers = matches(trimmed, _FLOAT.replace("POINT", re.escape(decimal_point))) | matches(trimmed, _INF)
        parsed = _cast(_only(written, numbers), pa.float32() if wanted == "float32" else pa.float64())
        values = pc.fill_null(parsed, 0).to_numpy()
        fits = numbers & np.isfinite(values)
    else:
        values, fits = _PARSERS[wanted](trimmed)

    def reason(place: int) -> str:
        if wanted == "int64" and matches(trimmed[place : place + 1], _INT).any():
            return f"is {trimmed[place]}, {OVER_INT64}"
        if wanted in FLOATS and np.isinf(values[place]):
            return f"is {trimmed[place]}, {NOT_FINITE}"
        return f"is {shown(texts[place].as_py())}, not {_MEANS[wanted]}"

    return Values(np.where(fits, values, 0).astype(values.dtype), missing, reasons(~fits & ~missing, reason))


def matches(texts: pa.Array, pattern: str) -> Mask:
    """Returns where texts match a regular expression of RE2, bool [n]; null does not."""
    return as_mask(pc.match_substring_regex(texts, pattern))


@dataclass
class TypeInference:
    """The type of a column of texts, over all of its files: a type holds if it holds for every value."""

    decimal_point: str = "."
    num_values: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*_NARROWEST, "code"), 0))
    """Values that are written as each type is; of digits that are a code and no number: `code`."""
    others: dict[str, str] = field(default_factory=dict)
    """The first value that is not, by type, and where it stands."""
    losses: dict[str, str] = field(default_factory=dict)
    """The first value that a type would not hold exactly, by type, and where it stands."""

    def add(self, texts: pa.Array, place: Callable[[int], str]) -> None:
        """Counts texts [n], of which null is none; `place(i)` says what the i-th is and where it stands."""
        valid = ~nulls(texts)
        trimmed = pc.ascii_trim_whitespace(texts)
        ints = matches(trimmed, _GUESSED_INT)
        number = matches(trimmed, _GUESSED_FLOAT.replace("POINT", re.escape(self.decimal_point)))
        number |= matches(trimmed, _NAN) | matches(trimmed, _INF)
        bools = dates = times = codes = np.zeros(len(texts), bool)
        if not np.array_equal(number, valid):
            codes, bools = matches(trimmed, _CODE), matches(trimmed, _GUESSED_BOOL)
            dates, times = _date(trimmed)[1], _timestamp(trimmed)[1]
        found = {"int64": ints, "float64": number, "bool": bools, "date": dates, "timestamp": times, "code": codes}
        self.num_values += int(valid.sum())
        for kind, mask in found.items():
            self.counts[kind] += int(mask.sum())
            self._note(self.others, kind, valid & ~mask, place)
        for kind, mask in self._losses(trimmed, ints, times).items():
            self._note(self.losses, kind, mask, place)

    def type(self, column: str) -> ColumnType:
        """Returns the narrowest type that holds for all values; string if none does, or if there are none.

        Raises ConfigError if that type would change a value, or if it holds for more than half of the values only: then
        a person must say whether the others mean a missing value.
        """
        if not self.num_values:
            return "string"
        if self.counts["int64"] + self.counts["code"] == self.num_values and self.counts["code"]:
            return "string"
        for kind in _NARROWEST:
            if self.counts[kind] == self.num_values:
                self._check_exact(column, kind)
                return kind
        for kind in ("float64", "bool", "timestamp"):
            if self.counts[kind] * 2 > self.num_values:
                num_others = self.num_values - self.counts[kind]
                raise ConfigError(
                    f"data.source: column {column!r} holds {_MANY[kind]} but for {num_others} of {self.num_values} "
                    f"values, such as {self.others[kind]}; add to data.source.null_tokens what means "
                    f"a missing value, or set data.source.types={{{column}: string}} (or {kind}, and such rows are bad)"
                )
        return "string"

    @staticmethod
    def _note(firsts: dict[str, str], kind: str, mask: Mask, place: Callable[[int], str]) -> None:
        if kind not in firsts and mask.any():
            firsts[kind] = place(int(mask.argmax()))

    def _check_exact(self, column: str, kind: str) -> None:
        if (loss := self.losses.get(kind)) is not None:
            fix = "timestamp (which cuts it to microseconds)" if kind == "timestamp" else "float64"
            raise ConfigError(
                f"data.source: column {column!r} holds {_MANY[kind]}, of which {kind} cannot hold {loss} exactly; "
                f"set data.source.types={{{column}: string}} or {fix}"
            )

    def _losses(self, texts: pa.Array, ints: Mask, times: Mask) -> dict[str, Mask]:
        """Returns where a text would lose digits, by the type that loses them."""
        losses = {"timestamp": times & matches(texts, _MORE_THAN_MICROSECONDS)} if times.any() else {}
        if ints.any():
            values, fits = _int64(texts)
            over = ints & ~fits
            losses |= {"int64": over, "float64": over | ints & ~_exact(values)}
        return losses


def _exact(values: NDArray[np.int64]) -> Mask:
    """Returns which whole numbers float64 holds exactly, bool [n]."""
    floats = values.astype(np.float64)
    inside = np.abs(floats) < 2.0**63
    return inside & (np.where(inside, floats, 0).astype(np.int64) == values)


def _only(texts: pa.Array, kept: Mask) -> pa.Array:
    return pc.if_else(pa.array(kept), texts, pa.scalar(None, pa.string()))


def _cast(texts: pa.Array, type: pa.DataType) -> pa.Array:
    """Returns texts as another type, null where one is none; pyarrow itself names no place, so the halves are tried."""
    try:
        return pc.cast(texts, type)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, type)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], type), _cast(texts[half:], type)])


def _parsed(texts: pa.Array, type: pa.DataType, as_int: pa.DataType) -> tuple[NDArray[np.int64], Mask]:
    parsed = _cast(texts, type)
    return pc.fill_null(parsed.cast(as_int), 0).to_numpy().astype(np.int64), ~nulls(parsed)


def _int64(trimmed: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    kept = _only(trimmed, matches(trimmed, _INT))  # pyarrow would read 0x1F too, but no plus sign
    return _parsed(pc.replace_substring_regex(kept, r"^\+", ""), pa.int64(), pa.int64())


def _bool(trimmed: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    fits = matches(trimmed, _BOOL)
    return (fits & matches(trimmed, r"(?i)^(true|1)$")).astype(np.int64), fits


def _date(trimmed: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    return _parsed(_only(trimmed, matches(trimmed, _DATE)), pa.date32(), pa.int32())


def _timestamp(trimmed: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    kept = _only(trimmed, matches(trimmed, _TIMESTAMP))
    kept = pc.replace_substring_regex(kept, r"(\.\d{6})\d+", r"\1")
    kept = pc.replace_substring_regex(kept, r"^(.{10})$", r"\1T00:00")
    zoned = matches(kept, rf"^.{{10,}}:\d{{2}}(\.\d+)?{_ZONE}$")
    utc = pc.if_else(pa.array(zoned), kept, pc.binary_join_element_wise(kept, "Z", ""))
    return _parsed(utc, pa.timestamp("us", "UTC"), pa.int64())


_PARSERS = {"int64": _int64, "bool": _bool, "date": _date, "timestamp": _timestamp}
