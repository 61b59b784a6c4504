"""Random configs of small sources: the right values, or a MillstreamError in a sentence, and nothing else."""

import csv
import datetime
import io
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tasks.config import Config, DataConfig, build_config
from tasks.errors import ConfigError, MillstreamError
from tasks.prepare.manifest import ShardManifest
from tasks.prepare.names import feature_names
from tasks.prepare.scan import KEYS
from tasks.schema import fields_of
from tests.any_source import SOURCES, colour_of, prepared, read_split

few = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

HEADER = ("key", "age", "weight", "colour", "ok", "day", "patient", "größe (cm)", "y")


def _row(index: int) -> list[str]:
    return [
        f"k{index}",
        str(index * 3 - 20),
        ("NA" if index % 6 == 5 else "" if index % 6 == 2 else f"{index / 8}"),
        ("rot", 'gr"ün', "blau, hell", "zwei\nZeilen")[index % 4],
        ("true", "false")[index % 2],
        str(datetime.date(2026, 1, 1) + datetime.timedelta(index)),
        f"p{index % 7}",
        f"{index},5",
        ("no", "yes", "1")[index * 7 % 11 % 3],
    ]


ROWS = [_row(index) for index in range(40)]

_values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 3, 2**31, 2**63, 10**30, 0.5, -0.1, 1e400, math.nan, "", " ", "x", "0.3", "süß\n"]),
    st.sampled_from(
        [[], [1], ["a", "a"], {}, {"kind": "x"}, {"a": {"b": []}}, [[None]], "utf-8", "1 MB", "-1 MB", "0"]
    ),
    st.text(max_size=4),
)
_columns = st.sampled_from(HEADER) | st.sampled_from([*HEADER, "nope", "", "Age", "a.b"])
_shares = st.sampled_from([0.05, 0.1, 0.2, 1 / 3, 0.6, 0.8, 0.34])
_three = st.one_of(
    st.sampled_from([(0.8, 0.1, 0.1), (0.4, 0.3, 0.3), (0.98, 0.01, 0.01)]), st.tuples(_shares, _shares, _shares)
).map(lambda shares: dict(zip(("train", "validation", "test"), shares, strict=True)))
_names = st.sampled_from(
    ["cat", "*cat*", "*p[01]*", "*p2*", "*", "*[34].*", "[", "train", "a.csv", "", 0.2, 0.3, "dog2"]
)
_times = st.sampled_from(["2026-01-20", "2026-02-01T00:00:00+01:00", "20", "30", "soon", "2026-13-01"])
_patterns = st.sampled_from([None, "p([0-9])", "(p|q)?", "([0-9]+)", "no group", "(", "k(.)", "()"])
_encodings = st.sampled_from(
    ["utf-8", "ascii", "utf-16", "utf-32", "utf-7", "cp037", "idna", "punycode", "undefined", "unicode_escape"]
) | st.sampled_from(["rot13", "hex", "no", "", "\0", "ü", "utf-8\n", "mbcs"])
_classes = st.one_of(
    st.none(),
    st.permutations(["no", "yes", "1"]),
    st.permutations(["cat", "dog2", "dog10"]),
    st.lists(st.sampled_from(["no", "yes", "1", "cat", "dog2", "dog10", "true", "false", "", "more"]), max_size=4),
)
_splits = st.one_of(
    _three.map(lambda shares: {"kind": "fraction", **shares}),
    st.builds(
        lambda s, c, p: {"kind": "group", "column": c, "pattern": p, **s}, _three, _columns | st.just("path"), _patterns
    ),
    st.builds(lambda s, c: {"kind": "time", "column": c, **s}, _three, _columns),
    st.builds(
        lambda c, a, b: {"kind": "time", "column": c, "validation_from": a, "test_from": b}, _columns, _times, _times
    ),
    st.builds(
        lambda k, a, b, c: {"kind": k, "train": a, "validation": b, "test": c},
        st.sampled_from(["official", "file"]),
        _names,
        _names,
        _names,
    ),
)
_data = {
    "splits": _splits,
    "seed": st.sampled_from([0, 1, 2**31 - 1]),
    "shard_size": st.sampled_from(["1 KB", "1 MB", "200 B"]),
    "num_shards": st.sampled_from([None, 1, 7, 24, 500]),
    "max_bad_fraction": st.sampled_from([0, 0.2, 0.6, 0.99]),
}
_folders = {"source.classes": _classes}
_of_kind: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "csv": {
        "source.format": st.sampled_from(["csv", "auto"]) | st.sampled_from(["parquet", "json", "arrow"]),
        "source.target": st.sampled_from(["y", "ok", "colour", "patient"]) | _columns,
        "source.columns": st.none() | st.lists(_columns, min_size=1, max_size=4, unique=True),
        "source.text": st.lists(st.sampled_from(["colour", "patient"]) | _columns, max_size=2, unique=True),
        "source.id": st.sampled_from([None, "key"]) | _columns,
        "source.types": st.dictionaries(
            _columns,
            st.sampled_from(["int64", "float32", "float64", "bool", "string", "date", "timestamp"]),
            max_size=3,
        ),
        "source.classes": _classes,
        "source.missing": st.sampled_from(["refuse", "keep"]),
        "source.null_tokens": st.lists(st.sampled_from(["0", "rot", "no", " ", "true"]), max_size=2).map(
            lambda tokens: ["", "NA", *tokens]
        )
        | st.lists(st.sampled_from(["", "NA"]), max_size=2),
        "source.delimiter": st.just(",") | st.sampled_from([";", "\t", "|", '"', "\n", "ü", ".", "a", "\0", " "]),
        "source.encoding": st.sampled_from(
            ["utf-8", "latin-1", "ascii", "utf-16", "cp1252", "utf-8-sig", "rot13", "no"]
        ),
        "source.decimal_point": st.sampled_from([".", ",", ";", "0", "-", " "]),
    },
    "images": {
        **_folders,
        "source.store": st.sampled_from(["encoded", "jpeg", "png", "raw"]),
        "source.short_side": st.sampled_from([None, 1, 3, 20]),
        "source.quality": st.sampled_from([1, 50, 100]),
        "source.channels": st.sampled_from([1, 3]),
        "source.max_pixels": st.sampled_from([1, 47, 48, 100]),
    },
    "texts": {
        **_folders,
        "source.encoding": st.sampled_from(["utf-16", "utf-16-le"]) | _encodings,
        "source.max_size": st.sampled_from(["1 B", "38 B", "40 B", "1 MB"]),
    },
}
_ANY_FIELD = [path for path in fields_of(DataConfig) if path not in {"source.path", "num_workers"}]
_MOST = {"source.short_side": 20, "source.max_pixels": 10**6}


@st.composite
def _changes(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """One to five fields with values that might be right, and perhaps one with any value."""
    fields = _data | _of_kind[kind]
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=5, unique=True))
    changes = {path: draw(fields[path]) for path in chosen}
    if draw(st.integers(0, 3)) == 0:
        changes[draw(st.sampled_from([*_ANY_FIELD, "source.targt", "nope"]))] = draw(_values)
    return changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds csv/, images/ and texts/."""
    top = tmp_path_factory.mktemp("sources")
    for kind in _of_kind:
        (top / kind).mkdir()
    with open(top / "csv" / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([HEADER, *ROWS])
    SOURCES["images encoded"].write(top / "images")
    SOURCES["texts"].write(top / "texts")
    return top


_TREES: dict[str, dict[str, Any]] = {
    "csv": {
        "source": {"kind": "table", "target": "y", "missing": "keep", "null_tokens": ["", "NA"]},
        "max_bad_fraction": 0.3,
    },
    "images": {"source": {"kind": "image_folder"}, "num_workers": 1, "max_bad_fraction": 0.3},
    "texts": {"source": {"kind": "text_folder", "encoding": "utf-16"}, "max_bad_fraction": 0.3},
}


def _tried(folder: Path, kind: str, changes: dict[str, Any]) -> bool:
    """Prepares the source of a kind under changed fields, and compares what comes of it; false if it is refused."""
    tree = json.loads(json.dumps({"name": "any", "data": _TREES[kind]}))
    tree["data"]["source"]["path"] = str(folder / kind)
    for path, value in changes.items():
        *groups, name = path.split(".")
        place = tree["data"]
        for group in groups:
            place = place[group] if isinstance(place.get(group), dict) else place.setdefault(group, {}) or {}
        if isinstance(place, dict):
            place[name] = value
    try:
        config = build_config(tree)
    except ConfigError as error:
        _check_lines(str(error))
        return False
    try:
        shards = prepared(config, folder / "workspace")
    except MillstreamError as error:
        _check_sentence(str(error))
        return False
    manifest = shards.manifest()
    ids = pq.read_table(shards.directory / KEYS).to_pydict()
    keys = dict(zip(ids["id"], ids["key"], strict=True))
    seen: set[int] = set()
    for split in manifest.splits:
        for example in read_split(shards.directory, manifest, split):
            assert example["id"] not in seen
            seen.add(example["id"])
            label = manifest.label_map[example["label"]]
            if config.data.source.kind != "digits":  # of a source without any field
                _COMPARE[kind](Got(config, folder / kind, manifest, keys[example["id"]], label, example))
    assert len(seen) == sum(shards.num_examples.values())
    assert seen == set(keys) or any("are in no split" in note for note in manifest.notes)
    total = {"table": 40, "image_folder": 43, "text_folder": 43, "digits": 1797}[config.data.source.kind]
    assert len(keys) + shards.num_bad == total
    return True


def _check_lines(message: str) -> None:
    """A line for each wrong field, that begins with its path."""
    assert [line for line in message.splitlines() if not re.match(r"(data|nope)[\w.]*[:=]", line)] == []


def _check_sentence(message: str) -> None:
    first, *others = message.splitlines()
    assert ": " in first
    assert not others or "cannot be used; mend" in first  # the bad examples follow


@dataclass(frozen=True)
class Got:
    """An example as it lies in the shards, and where it is from."""

    config: Config
    folder: Path
    manifest: ShardManifest
    key: str
    label: str
    example: dict[str, Any]


def _compare_row(got: Got) -> None:
    source: Any = got.config.data.source
    text = (got.folder / "a.csv").read_bytes().decode(source.encoding)
    header, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=source.delimiter)
    row = dict(zip(header, rows[got.example["id"]], strict=True))
    expected_key = f"a.csv:{got.example['id'] + 1}" if source.id is None else row[source.id]
    assert got.key == expected_key
    tokens = {token.strip() for token in source.null_tokens}
    assert row[source.target] not in tokens
    assert _same_class(got.label, row[source.target])
    inputs = [
        name for name in header if name not in {source.target, source.id, getattr(got.config.data.splits, "column", 0)}
    ]
    names = feature_names(source.columns or inputs)
    assert got.manifest.inputs == tuple(names.values())
    for column, name in names.items():
        feature, stored, value = got.manifest.features[name], got.example[name], row[column]
        missing = value in tokens
        assert feature.missing is not None or not missing
        if feature.missing is not None:
            assert got.example[feature.missing] == missing
        if feature.dtype == "string":
            assert stored == (b"" if missing else value.encode())
            assert (feature.kind == "text") == (column in source.text)
        else:
            scale = 86_400_000_000 if source.types.get(column) == "timestamp" else 1
            assert stored == (0 if missing else _number(value, feature.dtype, source.decimal_point) * scale)


def _same_class(label: str, value: str) -> bool:
    return label == value or label == str(int(float(value)))


def _number(value: str, dtype: str, decimal_point: str) -> float:
    """Returns the number that a text of the CSV means, whatever column it is in."""
    if value in {"true", "false"}:
        return int(value == "true")
    if value[4:5] == "-" and value[7:8] == "-":
        return (datetime.date.fromisoformat(value) - datetime.date(1970, 1, 1)).days
    number = float(value.replace(decimal_point, "."))
    return float(np.float32(number)) if dtype == "float32" else int(number) if dtype == "int64" else number


def _compare_image(got: Got) -> None:
    source: Any = got.config.data.source
    assert got.label == got.key.partition("/")[0]
    stored = got.example["image"]
    colour = np.array(colour_of(int(re.findall("/([0-9]+)-", got.key)[0])), float)
    if source.channels == 1:
        colour = np.array([colour @ [0.299, 0.587, 0.114]])
    side = source.short_side
    if source.store == "raw":
        pixels = np.array(stored)
        assert pixels.shape == (side, side, source.channels)
    else:
        image = Image.open(io.BytesIO(stored))
        assert image.format == ("JPEG" if source.store == "jpeg" else "PNG")
        assert image.size == ((6, 8) if side is None else (side, math.floor(side * 8 / 6 + 0.5)))
        if source.store == "encoded" and source.channels == 3:
            assert stored == (got.folder / got.key).read_bytes()
        pixels = np.asarray(image).reshape(image.height, image.width, -1)
    tolerance = {1: 160, 50: 16, 100: 6, 90: 8}[source.quality] if source.store == "jpeg" else 1
    assert pixels.shape[-1] == len(colour)
    assert np.abs(pixels - colour).max() <= tolerance


def _compare_text(got: Got) -> None:
    source: Any = got.config.data.source
    assert got.label == got.key.partition("/")[0]
    data = (got.folder / got.key).read_bytes()
    assert len(data) <= source.max_size.size_bytes
    assert got.example["text"] == data.decode(source.encoding).removeprefix("\ufeff").encode()


_COMPARE = {"csv": _compare_row, "images": _compare_image, "texts": _compare_text}


@pytest.mark.parametrize("kind", _TREES)
def test_nothing_changed_is_prepared(folder: Path, kind: str) -> None:
    assert _tried(folder, kind, {})


@few
@given(changes=_changes("csv"))
def test_any_config_of_a_table(folder: Path, changes: dict[str, Any]) -> None:
    _tried(folder, "csv", changes)


@few
@given(changes=_changes("images"))
def test_any_config_of_an_image_folder(folder: Path, changes: dict[str, Any]) -> None:
    _tried(folder, "images", changes)


@few
@given(changes=_changes("texts"))
def test_any_config_of_a_text_folder(folder: Path, changes: dict[str, Any]) -> None:
    _tried(folder, "texts", changes)
