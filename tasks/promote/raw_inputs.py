"""Raw inputs: the examples that files hold, as `serving_default` takes them."""

import base64
import binascii
import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.errors import DataError
from tasks.export.manifest import SignatureInput
from tasks.prepare.names import MARK
from tasks.prepare.text_folder import decode_text

Inputs = Mapping[str, SignatureInput]


class RawExample(NamedTuple):
    """One example, and where it is from."""

    source: str
    values: dict[str, Any]
    """{argument: array [*shape], or bytes}."""
    left_out: tuple[str, ...]
    """Columns of its row that are no inputs."""


def read_examples(file: Path, inputs: Inputs) -> Iterator[RawExample]:
    """Yields the examples of a file, by the end of its name: rows of .csv, an object or a list of them of .json.

    A row has each input under its name or its column's; in JSON an image is base64, null a missing value, as is an
    empty one in CSV. Any other file is the one input that the model has: an image, a text in UTF-8, an array of .npy.
    Raises DataError that names file, row and input of what is missing or of another type; nothing is rounded.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from None
    match file.suffix.lower():
        case ".csv":
            rows = _csv_rows(file, data)
        case ".json":
            rows = _json_rows(file, data)
        case suffix:
            yield RawExample(str(file), _whole(str(file), suffix, data, inputs), ())
            return
    for number, row in enumerate(rows, 1):
        source = f"{file}:{number}" if len(rows) > 1 else str(file)
        yield _example(source, row, inputs)


def _csv_rows(file: Path, data: bytes) -> list[dict[str, Any]]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: is no CSV in UTF-8 ({error})") from None
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise DataError(f"{file}:{number}: has not as many values as the first line has names")
    return [{name: None if value == "" else _Text(value) for name, value in row.items()} for row in rows]


class _Text(str):
    """A value of a CSV, which may be meant as a number."""


def _json_rows(file: Path, data: bytes) -> list[dict[str, Any]]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise DataError(f"{file}: is no JSON ({error})") from None
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{file}: must be an object, or a list of objects, of {{input: value}}")
    return rows


def _whole(source: str, suffix: str, data: bytes, inputs: Inputs) -> dict[str, Any]:
    """Returns a file that is one input."""
    if len(inputs) != 1:
        raise DataError(f"{source}: the model takes {', '.join(inputs)}; give them as a row of .json or .csv")
    [(name, input)] = inputs.items()
    if input.kind == "image":
        return {name: data}
    if input.dtype == "string":
        try:
            return {name: decode_text(data, "utf-8").encode()}
        except ValueError as error:
            raise DataError(f"{source}: {error}") from None
    if suffix != ".npy":
        raise DataError(f"{source}: the model takes {name} as {_form(input)}; give it as .npy or in .json")
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{source}: is no .npy ({error})") from None
    return {name: _numbers(source, name, array, input)}


def _example(source: str, row: Mapping[str, Any], inputs: Inputs) -> RawExample:
    values: dict[str, Any] = {}
    marks = {input.feature: name for name, input in inputs.items() if input.kind == "missing"}
    columns = {name: name if name in row else input.feature for name, input in inputs.items()}
    for name, input in inputs.items():
        if columns[name] not in row:
            if input.kind == "missing":
                continue  # follows from the value that it marks
            raise DataError(f"{source}: lacks {_both(name, input)}; the model takes {', '.join(inputs)}")
        value, mark = row[columns[name]], marks.get(input.feature + MARK)
        if isinstance(value, _Text) and input.dtype != "string":
            value = _number(value)
        if value is None and mark is None and input.kind == "text":
            value = ""
        if value is None and mark is None:
            raise DataError(f"{source}: {_both(name, input)} is missing, which the model has not learned to take")
        if mark is not None:
            values.setdefault(mark, np.asarray(int(value is None), inputs[mark].dtype))
        values[name] = _value(source, name, value, input)
    return RawExample(source, values, tuple(name for name in row if name not in columns.values()))


def _value(source: str, name: str, value: Any, input: SignatureInput) -> Any:
    if value is None:
        return b"" if input.dtype == "string" else np.zeros(input.shape, input.dtype)
    if input.dtype != "string":
        return _numbers(source, name, value, input)
    if not isinstance(value, str):
        raise DataError(f"{source}: {_both(name, input)} is {value!r:.40}, where {_form(input)} is due")
    if input.kind != "image":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise DataError(f"{source}: {_both(name, input)} is no base64 ({error})") from None


def _numbers(source: str, name: str, value: Any, input: SignatureInput) -> np.ndarray:
    """Returns numbers as an array of an input's shape and type; raises DataError if that changed one."""
    wrong = DataError(f"{source}: {_both(name, input)} is {value!r:.40}, where {_form(input)} is due")
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        raise wrong from None
    wanted = np.dtype(input.dtype)
    if array.shape != input.shape or array.dtype.kind not in ("iu" if wanted.kind in "iu" else "iuf"):
        raise wrong
    with np.errstate(over="ignore"):
        found = array.astype(wanted)
    if not np.isfinite(found).all() or (wanted.kind in "iu" and (found != array).any()):
        raise wrong
    return found


def _number(text: str) -> Any:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return str(text)


def _both(name: str, input: SignatureInput) -> str:
    return name if name == input.feature else f"{name} ({input.feature!r})"


def _form(input: SignatureInput) -> str:
    """Returns what an input must be, in words."""
    if input.dtype == "string":
        return "base64 of an image" if input.kind == "image" else "a text"
    return f"{input.dtype} {list(input.shape)}" if input.shape else input.dtype
