"""JsonLinesFiles: the tables of files with one JSON object a line, whose values have JSON's own types."""

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import INT64, BadExample
from tasks.prepare.table.rows import Rows
from tasks.prepare.wording import shown
from tasks.sources import ColumnType, TableSource

BATCH_BYTES = 2 << 20
MAX_LINE_BYTES = 64 << 20
_ARROW = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string()}
_NUMBERS = {"int", "float"}


class JsonLinesFiles:
    """Files of JSON lines below a directory; opening them reads them once, to see the types of all values."""

    def __init__(self, directory: Path, files: Sequence[str], source: TableSource) -> None:
        """Raises DataError if a file cannot be read or holds no JSON lines."""
        self._directory, self._files = directory, files
        self._found: dict[str, _Found] = {}
        for file in files:
            for numbers, objects, _ in self._objects(file):
                for number, values in zip(numbers, objects, strict=True):
                    for name, value in values.items():
                        if name not in self._found:
                            self._found[name] = _Found()
                        self._found[name].add(value, number, file)
        parents = {name[:index] for name in self._found for index, c in enumerate(name) if c == "."}
        for name in parents & self._found.keys():
            self._found[name].kinds.setdefault("dict", "an object in another row")
            if self._found[name].kinds.keys() == {"dict"}:
                del self._found[name]  # null or empty: all of its values are missing there
        types = {name: found.type(source.types.get(name)) for name, found in self._found.items()}
        self.types = dict.fromkeys(files, types)
        self.notes: tuple[str, ...] = ()

    def infer(self, names: Sequence[str]) -> dict[str, ColumnType]:
        """Checks that columns hold values of one type each that does not change them; raises ConfigError."""
        for name in names:
            self._found[name].check(name)
        return {}

    def read(self, file: str, names: Sequence[str]) -> Iterator[Rows]:
        """Yields all rows of a file with the columns `names`, null where an object lacks one.

        A line that is no JSON object, or that has a name twice, is a bad row; empty lines are none.
        """
        types = self.types[file]
        for numbers, objects, bad in self._objects(file):
            columns = {}
            for name in names:
                values = [values.get(name) for values in objects]
                if pa.types.is_string(types[name]):
                    values = [_text(value) for value in values]
                columns[name] = pa.array(values, types[name])
            yield Rows(np.array(numbers, np.int64), columns, tuple(bad))

    def _objects(self, file: str) -> Iterator[tuple[list[int], list[dict[str, Any]], list[BadExample]]]:
        """Yields the flat objects of neighbouring lines with their numbers, and the bad ones."""
        size_bytes = 0
        numbers: list[int] = []
        objects: list[dict[str, Any]] = []
        bad: list[BadExample] = []
        for number, line in enumerate(self._lines(file), start=1):
            try:
                objects.append(_flat(_parse(line)))
                numbers.append(number)
            except (ValueError, RecursionError) as error:
                if number == 1 and line.startswith(b"["):
                    raise DataError(
                        f"{self._directory / file}: begins with a list, not with one JSON object a line; convert it "
                        f"with jq -c '.[]'"
                    ) from None
                bad.append(BadExample(path=file, row=number, reason=f"is not a JSON object: {error}"))
            size_bytes += len(line)
            if size_bytes > BATCH_BYTES:
                yield numbers, objects, bad
                size_bytes, numbers, objects, bad = 0, [], [], []
        yield numbers, objects, bad

    def _lines(self, file: str) -> Iterator[bytes]:
        path = self._directory / file
        try:
            with pa.input_stream(str(path)) as stream, io.BufferedReader(stream) as lines:
                start = lines.peek(3)[:3]
                if start == b"\xef\xbb\xbf":
                    lines.read(3)
                while line := lines.readline(MAX_LINE_BYTES):
                    if len(line) == MAX_LINE_BYTES:
                        raise DataError(
                            f"{path}: has a line of more than {MAX_LINE_BYTES >> 20} MB; write one row a line"
                        )
                    if stripped := line.strip():
                        yield stripped
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read ({error}); fetch it anew") from error


@dataclass
class _Found:
    """What JSON values of one column were found, and where the first of each kind stands."""

    kinds: dict[str, str] = field(default_factory=dict)
    elements: set[str] = field(default_factory=set)
    """Kinds of the values in lists."""
    over: str | None = None
    """The first whole number that int64 cannot hold."""
    inexact: str | None = None
    """The first whole number that float64 cannot hold."""

    def add(self, value: Any, number: int, file: str) -> None:
        if value is None:
            return
        kind = type(value).__name__
        if kind not in self.kinds:
            self.kinds[kind] = f"{shown(value)} in row {number} of {file}"
        if kind == "int":
            self._check(value, value, number, file)
        elif kind == "list":
            for element in value:
                self.elements.add("null" if element is None else type(element).__name__)
                if type(element) is int:
                    self._check(element, value, number, file)

    def _check(self, number: int, value: Any, row: int, file: str) -> None:
        if -(2**53) <= number <= 2**53:
            return
        if self.over is None and number not in INT64:
            self.over = f"{shown(value)} in row {row} of {file}"
        if self.inexact is None and (number not in INT64 or int(float(number)) != number):
            self.inexact = f"{shown(value)} in row {row} of {file}"

    def type(self, wanted: ColumnType | None) -> pa.DataType:
        """Returns the Arrow type that holds all values; string for scalars that are to be converted from their text."""
        kinds = set(self.kinds)
        if not kinds:
            return pa.null()
        if "dict" in kinds:
            return pa.struct([])
        if "list" in kinds:
            elements = self.elements - {"null"}
            numbers = kinds == {"list"} and (elements <= _NUMBERS or elements == {"bool"}) and elements
            kind = "float" if elements == _NUMBERS else min(elements, default="str")
            return pa.list_(_ARROW[kind] if numbers and not self._loss(elements) else pa.string())
        if kinds == _NUMBERS and wanted is None:
            return pa.string() if self.inexact else pa.float64()
        return _ARROW[min(kinds)] if len(kinds) == 1 and not self.over else pa.string()

    def check(self, name: str) -> None:
        """Raises ConfigError if the values are of kinds that do not go together, or would lose digits."""
        kinds, elements = set(self.kinds), self.elements - {"null"}
        if len(kinds) > 1 and kinds != _NUMBERS:
            places = " and ".join(self.kinds[kind] for kind in sorted(kinds))
            fix = (
                "leave it out with data.source.columns"
                if kinds & {"list", "dict"}
                else f"set data.source.types={{{name}: string}}, or another type"
            )
            raise ConfigError(f"data.source: column {name!r} holds values of different types: {places}; {fix}")
        if loss := self._loss(elements if kinds == {"list"} else kinds):
            fix = (
                "leave it out with data.source.columns"
                if "list" in kinds
                else f"set data.source.types={{{name}: string}} or float64"
            )
            raise ConfigError(
                f"data.source: column {name!r} holds {loss}, which no number here can hold exactly; {fix}"
            )

    def _loss(self, kinds: set[str]) -> str | None:
        return self.inexact if kinds == _NUMBERS else self.over if kinds == {"int"} else None


def _parse(line: bytes) -> dict[str, Any]:
    value = _DECODER.decode(line.decode())
    if not isinstance(value, dict):
        raise ValueError(f"it is {shown(value)}")
    if b"\\ud" in line.lower():
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair raises UnicodeEncodeError
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a name twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of objects in objects as `a.b`."""
    if dict not in map(type, values.values()):
        return values
    flat: dict[str, Any] = {}
    for name, value in values.items():
        below = (
            {f"{name}.{key}": v for key, v in _flat(value).items()} if value and type(value) is dict else {name: value}
        )
        if flat.keys() & below.keys():
            raise ValueError(f"it has {min(flat.keys() & below.keys())} twice")
        flat |= below
    return flat


def _text(value: Any) -> str | None:
    if isinstance(value, float):
        return None if math.isnan(value) else repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else str(value)
