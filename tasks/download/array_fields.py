"""Fields of an example that a reader of the user's yields: what its values may be, and how they are stored."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.download.staged import WIDENED
from tasks.prepare.manifest import INT64, Dtype, Feature
from tasks.splits import microseconds_of


class Misfit(Exception):
    """A value that cannot be stored; says so as the end of a sentence: 'is None'."""


@dataclass(frozen=True)
class Field:
    """One named value of every example."""

    convert: Callable[[Any], Any]
    """Returns the value as it is stored; raises Misfit."""
    stored: str
    """Type in the files, as of StagedSchema.target and split_by."""
    feature: Feature | None = None
    """What it is as an input."""


def input_field(value: Any, *, text: bool, image: bool) -> Field:
    """Returns the field of an input whose first value this is; raises Misfit if it can be none."""
    value = _plain(value)
    if image:
        return Field(_bytes, "bytes", Feature.of("image", shape=(None, None, 3)))
    if text:
        return Field(_utf8, "bytes", Feature.of("text"))
    if isinstance(value, str):
        return Field(_utf8, "bytes", Feature.of("category"))
    if isinstance(value, np.ndarray):
        return _array_field(value)
    if isinstance(value, bytes):
        raise Misfit("is bytes; name it in data.source.images, or decode it to text")
    return _number_field(value)


def target_field(value: Any, kind: str) -> Field:
    """Returns the field of the target whose first value this is; raises Misfit if it is none of data.target.kind."""
    value = _plain(value)
    if kind == "regression":
        return Field(_numbers(1 if np.ndim(value) == 0 else len(value)), "numbers")
    if kind == "multi_label":
        return Field(_text, "string") if isinstance(value, str) else Field(_texts, "texts")
    if isinstance(value, np.ndarray):
        raise Misfit(f"is an array of shape {value.shape}; yield the class itself, such as int(x.argmax())")
    if isinstance(value, str):
        return Field(_text, "string")
    if isinstance(value, bool | np.bool_):
        return Field(_bool, "bool")
    if isinstance(value, int | np.integer):
        return Field(_int, "int64")
    if isinstance(value, float | np.floating):
        return Field(_whole_float, "float64")
    raise Misfit(f"{_what(value)}; a class is text, a whole number or a bool")


def text_field() -> Field:
    """Returns the field of a split's name or a key."""
    return Field(_text, "string")


def column_field(value: Any, use: str) -> Field:
    """Returns the field that data.splits goes by: a group is text or a whole number, a time a datetime or a number.

    A time becomes microseconds since 1970 in UTC; one without a zone is taken as UTC.
    """
    value = _plain(value)
    if use == "group":
        convert: Callable[[Any], Any] = _text if isinstance(value, str) else lambda value: str(_int(value))
        stored = "string"
    else:
        convert = _int if isinstance(value, int | np.integer) else _microseconds
        stored = "int64"
    return Field(convert, stored)


def _plain(value: Any) -> Any:
    """Returns the scalar in an array without dimensions; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _what(value: Any) -> str:
    return "is None" if value is None else f"is {type(value).__name__}"


def _number_field(value: Any) -> Field:
    for types, convert, dtype in _NUMBERS:
        if isinstance(value, types):
            return Field(convert, dtype, Feature.of("number", dtype))
    raise Misfit(f"{_what(value)}; an input is a number, text, an encoded image or a numpy array")


def _array_field(first: np.ndarray) -> Field:
    if first.dtype.name not in WIDENED:
        raise Misfit(f"is an array of {first.dtype}; convert it to one of {', '.join(WIDENED)}")
    dtype = WIDENED[first.dtype.name]

    def convert(value: Any) -> bytes:
        if not isinstance(value, np.ndarray):
            raise Misfit(f"{_what(value)}, not an array")
        if value.shape != first.shape:
            raise Misfit(f"has the shape {value.shape}, not {first.shape}")
        if value.dtype.name != first.dtype.name:
            raise Misfit(f"is an array of {value.dtype}, not of {first.dtype}")
        return np.ascontiguousarray(value, np.dtype(dtype).newbyteorder("<")).tobytes()

    return Field(convert, "bytes", Feature.of("tensor", dtype, first.shape))


def _bool(value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool | np.bool_):
        raise Misfit(f"{_what(value)}, not a bool")
    return bool(value)


def _int(value: Any) -> int:
    value = _plain(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise Misfit(f"{_what(value)}, not a whole number")
    if int(value) not in INT64:
        raise Misfit(f"is {value}, which int64 cannot hold")
    return int(value)


def _float64(value: Any) -> float:
    return _exact(value, np.float64)


def _float32(value: Any) -> float:
    return _exact(value, np.float32)


def _exact(value: Any, kind: type[np.floating[Any]]) -> float:
    """Returns a number that the type holds exactly."""
    value = _plain(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise Misfit(f"{_what(value)}, not a number")
    if isinstance(value, int | np.integer):
        if int(value) not in INT64 or int(kind(value)) != int(value):
            raise Misfit(f"is {value}, which {kind.__name__} cannot hold exactly")
    elif np.dtype(type(value)).itemsize > np.dtype(kind).itemsize:
        raise Misfit(f"is a {np.dtype(type(value))}, which {kind.__name__} cannot hold exactly")
    return float(value)


def _numbers(count: int) -> Callable[[Any], list[float]]:
    def convert(value: Any) -> list[float]:
        given = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
        if len(given) != count:
            raise Misfit(f"has {len(given)} numbers, not {count}")
        numbers = [_float64(each) for each in given]
        if not np.isfinite(numbers).all():
            raise Misfit(f"is {value}, not finite")
        return numbers

    return convert


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise Misfit(f"{_what(value)}, not a list of the names of classes")
    return sorted({_text(each) for each in value})


def _whole_float(value: Any) -> float:
    number = _float64(value)
    if not number.is_integer():
        raise Misfit(f"is {number}, not a whole number; a class is text, a whole number or a bool")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit(f"{_what(value)}, not text")
    _utf8(value)
    return str(value)


def _utf8(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Misfit(f"{_what(value)}, not text")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise Misfit(f"has a lone surrogate at character {error.start + 1}, which no text may") from None


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Misfit(f"{_what(value)}, not the bytes of an image")
    return bytes(value)


def _microseconds(value: Any) -> int:
    value = _plain(value)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise Misfit("is no time (NaT)")
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.UTC)
    if not isinstance(value, datetime.datetime):
        raise Misfit(f"{_what(value)}; a time is a datetime or a whole number")
    return microseconds_of(value)


_NUMBERS: tuple[tuple[tuple[type, ...], Callable[[Any], Any], Dtype], ...] = (
    ((bool, np.bool_), lambda value: int(_bool(value)), "int64"),
    ((int, np.integer), _int, "int64"),
    ((np.float16, np.float32), _float32, "float32"),
    ((float,), _float64, "float64"),  # np.float64 is one
)
