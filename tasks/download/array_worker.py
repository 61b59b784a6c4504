"""The array worker: stages what a reader of the user's yields, in a child process of its own."""

import importlib
import inspect
import itertools
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.download.array_fields import Field, Misfit, column_field, input_field, target_field, text_field
from tasks.download.heartbeat import heartbeat
from tasks.download.staged import (
    BAD_COLUMN,
    BAD_REASON,
    KEY,
    NUMBER,
    SCHEMA,
    SPLIT,
    SPLIT_BY,
    TARGET,
    SplitColumn,
    StagedSchema,
    StagedWriter,
    check_names,
)
from tasks.errors import ConfigError, DataError
from tasks.sources import ArraySource
from tasks.workers.child import progress

# Names with a meaning of their own in an example, both optional and text.
SPLIT_NAME, KEY_NAME = "split", "key"

_CHUNK_ROWS = 1024
_CHUNK_BYTES = 4 * 1024**2


def stage(*, source: dict[str, Any], kind: str, column: SplitColumn | None, directory: str, log: str) -> dict[str, Any]:
    """Writes the examples of an ArraySource (as JSON) into `directory`, with their StagedSchema; returns their number.

    `kind` is data.target.kind. `column`: name and use of what data.splits goes by; it is no input. `log`: the file that
    has this process's tracebacks, to be named in errors. The first example decides names, types and shapes; a later one
    that differs is a bad example. Raises ConfigError if the function cannot be imported or called, or the first example
    does not fit, DataError if the function fails or yields nothing.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to be saved
    config = ArraySource.model_validate(source)
    with heartbeat():
        examples = _read(config, log)
        try:
            first = next(examples)
        except StopIteration:
            raise DataError(f"data.source.read={config.read!r}: yields no example; check data.source.args") from None
        rows = _Rows(config, kind, first, column)
        schema = rows.schema()
        num_examples = 0
        with StagedWriter(Path(directory), schema.columns()) as writer:
            numbered = enumerate(itertools.chain([first], examples), start=1)
            for chunk in _chunks(rows.row(example, number) for number, example in numbered):
                writer.add_rows(chunk)
                num_examples += len(chunk)
                progress("staged", num_examples=num_examples)
    schema.model_copy(update={"splits": rows.splits}).write(Path(directory) / SCHEMA)
    return {"num_examples": num_examples}


def _read(config: ArraySource, log: str) -> Iterator[Any]:
    """Yields what the function yields; its own errors become ours, with the number of the example."""
    setting = f"data.source.read={config.read!r}"
    function = _import_function(config, log)
    try:
        inspect.signature(function).bind(**config.args)
    except TypeError as error:
        raise ConfigError(f"{setting}: does not take data.source.args={config.args}: {error}") from None
    number = 0
    try:
        examples = function(**config.args)
        if not hasattr(examples, "__iter__"):
            raise ConfigError(
                f"{setting}: returned {type(examples).__name__}; it must yield examples, or return a list"
            )
        for number, example in enumerate(examples, start=1):  # noqa: B007 - used where it fails
            yield example
    except ConfigError:
        raise
    except Exception as error:
        raise DataError(
            f"{setting}: failed at example {number + 1}: {_describe(error)}; its traceback is in {log}"
        ) from error


def _import_function(config: ArraySource, log: str) -> Callable[..., Any]:
    module, _, name = config.read.partition(":")
    setting = f"data.source.read={config.read!r}"
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{setting}: its module cannot be imported: {_describe(error)}; its traceback is in {log}"
        ) from error
    function = getattr(imported, name, None)
    if not callable(function):
        raise ConfigError(f"{setting}: {module} has no function {name!r}; name one of its functions")
    return function


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields neighbouring rows, some megabytes of them at once."""
    chunk: list[dict[str, Any]] = []
    size_bytes = 0
    for row in rows:
        chunk.append(row)
        size_bytes += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if len(chunk) == _CHUNK_ROWS or size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


@dataclass
class _Rows:
    """The rows of the staged files, one for each example."""

    config: ArraySource
    kind: str
    """data.target.kind."""
    first: Any
    column: SplitColumn | None
    splits: dict[str, int] = field(default_factory=dict)
    """Examples of each official split so far."""
    _keys: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Learns names and fields from the first example; raises ConfigError if it does not fit."""
        self._setting = f"data.source.read={self.config.read!r}"
        if not isinstance(self.first, Mapping) or not all(isinstance(name, str) for name in self.first):
            raise ConfigError(
                f"{self._setting}: example 1 is {type(self.first).__name__}; each must be a dict of names and values"
            )
        self._special = {self.config.target: TARGET, SPLIT_NAME: SPLIT, KEY_NAME: KEY}
        if self.column is not None:
            self._special[self.column["name"]] = SPLIT_BY
        self._check_settings()
        self._fields = {name: self._learn(name, value) for name, value in self.first.items()}
        check_names(self._inputs(), "rename it in what the function yields")

    def schema(self) -> StagedSchema:
        """Returns the schema of the staged examples."""
        split_by = self._fields[self.column["name"]].stored if self.column is not None else None
        return StagedSchema.model_validate(
            {
                "name": self.config.read,
                "features": {name: self._fields[name].feature for name in self._inputs()},
                "target": self._fields[self.config.target].stored,
                "classes": None,
                "split_by": split_by,
                "splits": {},
                "notes": (),
            }
        )

    def row(self, example: Any, number: int) -> dict[str, Any]:
        """Returns the row of an example, or the row of a bad one: split, number, column and reason."""
        row: dict[str, Any] = {NUMBER: number}
        name: str | None = None
        try:
            if not isinstance(example, Mapping):
                raise Misfit(f"is {type(example).__name__}, not a dict")
            # The split first, so that a bad example too is counted where it belongs.
            for name in sorted(self._fields, key=lambda name: name != SPLIT_NAME):
                if name not in example:
                    raise Misfit("is missing")
                row[self._special.get(name, name)] = self._fields[name].convert(example[name])
                if name == SPLIT_NAME:
                    self.splits[row[SPLIT]] = self.splits.get(row[SPLIT], 0) + 1
            for name in example:
                if name not in self._fields:
                    raise Misfit("is a name that the first example has not")
            name = KEY_NAME
            self._note_key(row)
        except Misfit as misfit:
            kept = {name: row[name] for name in (NUMBER, SPLIT) if name in row}
            return {**kept, BAD_COLUMN: name, BAD_REASON: str(misfit)}
        return row

    def _inputs(self) -> list[str]:
        return [name for name in self._fields if name not in self._special]

    def _learn(self, name: str, value: Any) -> Field:
        try:
            learned = self._field(name, value)
            learned.convert(value)
        except Misfit as misfit:
            raise ConfigError(
                f"{self._setting}: example 1: {name!r} {misfit}; the first example decides names, types and shapes"
            ) from None
        return learned

    def _field(self, name: str, value: Any) -> Field:
        special = self._special.get(name)
        if special == TARGET:
            return target_field(value, self.kind)
        if special in (SPLIT, KEY):
            return text_field()
        if special == SPLIT_BY:
            assert self.column is not None
            return column_field(value, self.column["use"])
        return input_field(value, text=name in self.config.text, image=name in self.config.images)

    def _check_settings(self) -> None:
        wanted = {
            "data.source.target": [self.config.target],
            "data.source.text": self.config.text,
            "data.source.images": self.config.images,
            "data.splits.column": [self.column["name"]] if self.column is not None else [],
        }
        for setting, names in wanted.items():
            for name in names:
                if name not in self.first:
                    raise ConfigError(f"{setting}: example 1 has no {name!r}; it has {', '.join(self.first)}")

    def _note_key(self, row: dict[str, Any]) -> None:
        if KEY in row:
            if row[KEY] in self._keys:
                raise Misfit(f"is {row[KEY]!r}, as of an earlier example")
            self._keys.add(row[KEY])
