"""Layout: how each column of a table is read and what it becomes, after all rows have been looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tasks.config import DataConfig
from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import Feature, Kind
from tasks.prepare.names import MARK, feature_names, rename_notes
from tasks.prepare.source import SourceSchema
from tasks.prepare.table.columnar import ColumnarFiles
from tasks.prepare.table.columns import is_text, plain
from tasks.prepare.table.delimited import DelimitedFiles
from tasks.prepare.table.facts import Facts, find_facts
from tasks.prepare.table.json_lines import JsonLinesFiles
from tasks.prepare.table.partitions import Partitioned
from tasks.prepare.table.roles import assign_roles
from tasks.prepare.table.rows import TableFiles
from tasks.prepare.table.target import TableTarget, open_target, target_columns
from tasks.prepare.table.usage import Usage, usage_of
from tasks.sources import ColumnType, TableSource
from tasks.splits import TimeSplits, is_whole_number
from tasks.target import MultiLabelTarget

_FORMATS = {
    "parquet": ("parquet", "pq"),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "arrow": ("arrow", "feather", "ipc"),
}
_BOUNDS = {
    "validation_from": "dates (2026-01-31)",
    "test_from": "dates (2026-01-31)",
    "validation_window": "lengths of time (7 days)",
    "test_window": "lengths of time (7 days)",
}
"""What bounds a split by time, and what it is called where the times are dates."""
_PACKED = {".gz", ".bz2", ".zst"}  # what pyarrow unpacks while it reads text


@dataclass(frozen=True)
class Layout:
    """All that it takes to read a table."""

    schema: SourceSchema
    notes: tuple[str, ...]
    files: TableFiles
    inputs: dict[str, Usage]
    """By the name of the feature."""
    target: TableTarget
    id: Usage | None
    split: Usage | None
    repeated: frozenset[int]
    """hash() of every id that is not the only one of its kind, and perhaps of others."""


def lay_out(config: DataConfig, directory: Path, files: Sequence[str]) -> Layout:
    """Returns how the table in `files` is read; raises ConfigError and DataError as `open_table`."""
    source = config.source
    assert isinstance(source, TableSource)
    if not files:
        raise DataError(f"{directory}: holds no files of a table; set data.source.path to where they are")
    table = Partitioned(_open(directory, files, source))
    roles = assign_roles(config, source, list(dict.fromkeys(name for types in table.types.values() for name in types)))
    times = [config.splits.column] if isinstance(config.splits, TimeSplits) else []
    open_names = dict.fromkeys([*roles.inputs, *source.targets, *times])
    inferred = table.infer([name for name in open_names if name not in source.types and name not in source.text])
    wanted: dict[str, ColumnType] = {**inferred, **source.types}

    inputs = [_input(name, table, wanted.get(name), source) for name in roles.inputs]
    targets = [usage_of(name, table.types, wanted.get(name), source.decimal_point) for name in source.targets]
    id = None if roles.id is None else _text(roles.id, table, source)
    split = None
    if roles.split is not None:
        split = (
            _time(roles.split, table, wanted, config.splits, source.decimal_point)
            if isinstance(config.splits, TimeSplits)
            else _text(roles.split, table, source)
        )
    unknown = target_columns(config.target, source, targets)
    delimiter = config.target.delimiter if isinstance(config.target, MultiLabelTarget) else None
    facts = find_facts(table, inputs, unknown, id, missing=source.missing == "keep", delimiter=delimiter)
    if not facts.num_rows:
        raise DataError(f"{directory / files[0]}: holds no rows{' nor do the other files' if files[1:] else ''}")
    inputs = [replace(usage, length=facts.lengths.get(usage.name)) for usage in inputs]
    target = open_target(config.target, source, targets, facts)
    names = feature_names(roles.inputs)
    features = _features(inputs, names, facts, source)
    return Layout(
        schema=SourceSchema(
            features,
            tuple(names.values()),
            target.names,
            target.feature,
            {names[usage.name]: usage.form.meaning for usage in inputs},
        ),
        notes=(*table.notes, *_notes(inputs, names, facts, inferred, source)),
        files=table,
        inputs={names[usage.name]: usage for usage in inputs},
        target=target,
        id=id,
        split=split,
        repeated=facts.repeated,
    )


def _open(directory: Path, files: Sequence[str], source: TableSource) -> TableFiles:
    formats = {file: _format(file) if source.format == "auto" else source.format for file in files}
    for file, format in formats.items():
        if format is None:
            raise ConfigError(
                f"data.source: {directory / file} has no ending of Parquet, CSV, JSON lines or Arrow "
                f"({', '.join('.' + ending for endings in _FORMATS.values() for ending in endings)}); set "
                f"data.source.format, or choose the files with a glob in data.source.path"
            )
        if format != formats[files[0]]:
            raise ConfigError(
                f"data.source: {files[0]} is {formats[files[0]]} but {file} is {format}; choose files of one format "
                f"with a glob in data.source.path"
            )
    match formats[files[0]]:
        case "csv":
            if source.decimal_point == source.delimiter:
                raise ConfigError(
                    f"data.source.decimal_point={source.decimal_point!r}: is the delimiter too; "
                    "set data.source.delimiter to what stands between two values"
                )
            return DelimitedFiles(directory, files, source)
        case "json":
            return JsonLinesFiles(directory, files, source)
        case format:
            return ColumnarFiles(directory, files, parquet=format == "parquet")


def _format(file: str) -> str | None:
    path = Path(file.lower())
    packed = path.suffix in _PACKED
    ending = (path.with_suffix("") if packed else path).suffix.removeprefix(".")
    format = next((format for format, endings in _FORMATS.items() if ending in endings), None)
    return None if packed and format not in ("csv", "json") else format


def _input(name: str, table: TableFiles, wanted: ColumnType | None, source: TableSource) -> Usage:
    usage = usage_of(name, table.types, wanted, source.decimal_point)
    if name in source.text and usage.form.meaning != "text":
        raise ConfigError(
            f"data.source.text: {name!r} is {usage.type}, not text; leave it out, or set "
            f"data.source.types={{{name}: string}}"
        )
    return usage


def _text(name: str, table: TableFiles, source: TableSource) -> Usage:
    return usage_of(name, table.types, source.types.get(name, "string"), source.decimal_point)


def _time(name: str, table: TableFiles, wanted: Mapping[str, ColumnType], splits: TimeSplits, point: str) -> Usage:
    def as_time(type: pa.DataType) -> ColumnType | None:
        # A text that is no time makes a bad row, wherever it stands.
        return "timestamp" if is_text(type) and wanted.get(name) in (None, "string") else wanted.get(name)

    usage = usage_of(name, table.types, as_time, point)
    if usage.form.meaning in ("text", "bool", "list"):
        raise ConfigError(
            f"data.splits.column: {name!r} is {usage.type}, not a time; choose a column of dates, times or numbers"
        )
    is_date = usage.form.meaning in ("date", "timestamp")
    for field, example in _BOUNDS.items():
        bound = getattr(splits, field)
        if bound is not None and is_whole_number(bound) == is_date:
            raise ConfigError(
                f"data.splits.{field}={bound}: {name!r} is {usage.wanted or usage.type}, which is compared with "
                f"{example if is_date else 'whole numbers'}; give one, or set "
                f"data.source.types={{{name}: {'int64' if is_date else 'timestamp'}}}"
            )
    return usage


def _features(
    inputs: Sequence[Usage], names: Mapping[str, str], facts: Facts, source: TableSource
) -> dict[str, Feature]:
    features: dict[str, Feature] = {}
    for usage in inputs:
        name, form = names[usage.name], usage.form
        marked = source.missing == "keep" and usage.name in facts.missing
        shape = (usage.length,) if form.shape is None else form.shape
        kind = _kind(usage, source)
        features[name] = Feature.of(kind, form.dtype, shape, missing=f"{name}{MARK}" if marked else None)
        if marked:
            features[f"{name}{MARK}"] = Feature.of("missing", "int64")
    for usage in inputs:
        if features[names[usage.name]].missing in names.values():
            raise ConfigError(
                f"data.source: column {usage.name!r} has missing values, to be marked by {names[usage.name]}{MARK}, "
                f"but a column has that name; rename it, or leave it out with data.source.columns"
            )
    return features


def _kind(usage: Usage, source: TableSource) -> Kind:
    match usage.form.meaning:
        case "list":
            return "tensor"
        case "text":
            return "text" if usage.name in source.text else "category"
        case _:
            return "number"


def _notes(
    inputs: Sequence[Usage],
    names: Mapping[str, str],
    facts: Facts,
    inferred: Mapping[str, ColumnType],
    source: TableSource,
) -> list[str]:
    notes = []
    if inferred:
        types = ", ".join(f"{name} {type}" for name, type in inferred.items())
        notes.append(f"column types, inferred from all rows of all files: {types}")
    naive = [each.name for each in inputs if pa.types.is_timestamp(plain(each.type)) and plain(each.type).tz is None]
    if naive:
        notes.append(f"times without a zone were taken as UTC: {', '.join(naive)}")
    notes += rename_notes(names)
    missing = [each.name for each in inputs if each.name in facts.missing]
    if missing:
        unless = "" if source.missing == "keep" else "; such a row is bad unless data.source.missing=keep"
        notes.append(f"columns with missing values: {', '.join(missing)}{unless}")
    return notes
