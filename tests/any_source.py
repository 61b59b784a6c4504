"""A small source of every kind, made from scratch, with all that its shards must hold."""

import csv
import datetime
import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from PIL import Image

from tasks.config import Config, build_config
from tasks.download.download import download
from tasks.prepare.manifest import Feature, ShardManifest, Shards
from tasks.prepare.prepare import prepare

REPOSITORY = Path(__file__).parents[1]
COLUMNS = ("age", "weight", "colour", "note", "ok")
FILES = {"part-1": 30, "part-2": 18, "part-10": 14}  # rows of each, in the order of the source


@dataclass(frozen=True)
class Made:
    """A source; `write` makes its files in a folder."""

    source: dict[str, Any]
    write: Callable[[Path], None]
    examples: dict[str, tuple[str, dict[str, Any]]]
    """Class and features of each good example by its key; a function in place of a value says whether it is right."""
    bad: frozenset[tuple[str, int | None, str | None]]
    """Path, row and column of each bad one."""
    label_map: tuple[str, ...]
    splits: dict[str, dict[str, Any]]
    """data.splits by kind, all that this source can have; the first is taken if no other is asked for."""
    skip: dict[str, list[str]] | None = None
    """By the kind of data.splits, what the reader of an array leaves out, since it could be no input."""

    def config(self, folder: Path, kind: str | None = None, **data: Any) -> Config:
        """Returns the config of the source in `folder`, with a kind of splits."""
        kind = kind or next(iter(self.splits))
        source = self.source | {"path" if "path" in self.source else "folder": str(folder)}
        if self.skip is not None:
            source["args"] = {"skip": self.skip[kind]}
        tree = {
            "source": source,
            "splits": {"kind": kind, **self.splits[kind]},
            "max_bad_fraction": 0.2,
            "num_workers": 1,
        }
        return build_config({"name": "any", "data": tree | data})

    def prepare(self, folder: Path, workspace: Path, kind: str | None = None, **data: Any) -> Shards:
        """Returns the shards of the source in `folder`, in a workspace."""
        return prepared(self.config(folder, kind, **data), workspace)


def prepared(config: Config, workspace: Path) -> Shards:
    """Returns the shards of a config: download, then prepare."""
    return prepare(config.name, config.data, download(config.data, workspace), workspace)


def read_split(directory: Path, manifest: ShardManifest, split: str) -> Iterator[dict[str, Any]]:
    """Yields the examples of a split as they lie in its files, in order: a list, bytes or an array by feature."""
    for shard in manifest.splits[split].shards:
        for record in records(directory / shard.file):
            stored = tf.train.Example.FromString(record).features.feature
            assert set(stored) == set(manifest.features)
            yield {name: _value(stored[name], feature) for name, feature in manifest.features.items()}


def records(file: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file; CRCs are the writer's tests' affair."""
    data, place = file.read_bytes(), 0
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + size]
        place += size + 16
    assert place == len(data)


def _value(stored: Any, feature: Feature) -> Any:
    match feature.storage:
        case "raw_bytes":
            (data,) = stored.bytes_list.value
            return np.frombuffer(data, feature.dtype).reshape(feature.shape).tolist()
        case "bytes_list":
            (data,) = stored.bytes_list.value
            return data
    values = list(stored.int64_list.value if feature.storage == "int64_list" else stored.float_list.value)
    return values if feature.shape else values[0]


def _row(index: int) -> dict[str, Any]:
    return {
        "age": index * 3 - 20,
        "weight": None if index % 7 == 3 else index / 8 + 0.1,
        "colour": ("rot", "grün", "blau")[index % 3],
        "note": f'Nr. {index}: "süß", sagt er\nund geht',
        "ok": index % 2 == 0,
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(index // 2),
        "patient": f"p{index * 5 % 7}",
        "y": None if index in (7, 33) else ("no", "yes", "maybe")[index * 7 % 11 % 3],
    }


ROWS = [_row(index) for index in range(sum(FILES.values()))]
_PLACES = [(file, row) for file, count in FILES.items() for row in range(1, count + 1)]


def _stored(row: dict[str, Any], *, marked: bool) -> dict[str, Any]:
    """Returns the features of a row."""
    weight = row["weight"]
    values = {
        "age": row["age"],
        "weight": 0.0 if weight is None else weight,
        "colour": row["colour"].encode(),
        "note": row["note"].encode(),
        "ok": int(row["ok"]),
    }
    return values | ({"weight_missing": int(weight is None)} if marked else {})


def _table(ending: str, write: Callable[[list[dict[str, Any]], Path], None], **source: Any) -> Made:
    def write_all(folder: Path) -> None:
        first = 0
        for file, count in FILES.items():
            write(ROWS[first : first + count], folder / f"{file}.{ending}")
            first += count

    keyed = [(f"{file}.{ending}", number, row) for (file, number), row in zip(_PLACES, ROWS, strict=True)]
    return Made(
        source={"kind": "table", "path": "", "target": "y", "columns": [*COLUMNS], "text": ["note"], "missing": "keep"}
        | source,
        write=write_all,
        examples={f"{file}:{number}": (row["y"], _stored(row, marked=True)) for file, number, row in keyed if row["y"]},
        bad=frozenset((file, number, "y") for file, number, row in keyed if not row["y"]),
        label_map=("maybe", "no", "yes"),
        splits={
            "fraction": {"train": 0.6, "validation": 0.2, "test": 0.2},
            "group": {"column": "patient"},
            "time": {"column": "day"},
            "file": {"train": "part-1.*", "validation": "part-2.*", "test": f"part-10.{ending}"},
        },
    )


def _write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"ok": str(row["ok"]).lower()} for row in rows)


def _write_jsonl(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)


def colour_of(index: int) -> tuple[int, int, int]:
    """Returns the colour of the picture of this number."""
    return index * 7 % 256, 255 - index * 5 % 256, index * 11 % 256


def picture(index: int) -> bytes:
    """Returns a PNG of 6 x 8 pixels of one colour."""
    data = io.BytesIO()
    Image.new("RGB", (6, 8), colour_of(index)).save(data, "png")
    return data.getvalue()


def _is_picture(index: int, form: str, size: tuple[int, int], tolerance: int) -> Callable[[bytes], bool]:
    def right(data: bytes) -> bool:
        image = Image.open(io.BytesIO(data))
        apart = np.abs(np.asarray(image, int) - colour_of(index)).max()
        return (image.format, image.size, image.mode) == (form, size, "RGB") and apart <= tolerance

    return right


_STORES: dict[str, tuple[dict[str, Any], Callable[[int], Any]]] = {
    "encoded": ({}, picture),
    "jpeg": ({"short_side": 12, "quality": 95}, lambda index: _is_picture(index, "JPEG", (12, 16), 4)),
    "png": ({"short_side": 3}, lambda index: _is_picture(index, "PNG", (3, 4), 0)),
    "raw": ({"short_side": 4}, lambda index: [[[*colour_of(index)]] * 4] * 4),
}


def _folder(
    name: str,
    source: dict[str, Any],
    file: Callable[[int], bytes],
    ending: str,
    expected: Callable[[int], Any],
    *,
    official: bool = False,
) -> Made:
    """A source of class folders: `<class>/*`, or `<split>/<class>/*` if it is official."""
    top = {
        index: ("teach/", "teach/", "teach/", "choose/", "judge/")[index % 5] if official else "" for index in range(42)
    }
    paths = {
        f"{top[index]}{('cat', 'dog2', 'dog10')[index % 3]}/{index}-p{index % 5}{ending}": index for index in range(42)
    }
    empty = f"{top[0]}cat/empty-p0{ending}"

    def write(folder: Path) -> None:
        for path, index in paths.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(file(index))
        (folder / empty).write_bytes(b"")
        (folder / "README").write_bytes(b"Which animal is it?")
        (folder / f"{top[0]}cat/.DS_Store").write_bytes(b"junk")

    return Made(
        source=source,
        write=write,
        examples={path: (path.split("/")[-2], {name: expected(index)}) for path, index in paths.items()},
        bad=frozenset({(empty, None, None)}),
        label_map=("cat", "dog2", "dog10"),
        splits={"official": {"train": "teach", "validation": "choose", "test": "judge"}}
        if official
        else {
            "fraction": {"train": 0.6, "validation": 0.2, "test": 0.2},
            "group": {"column": "path", "pattern": "-(p[0-9])"},
            "file": {"train": f"*p[0-2]{ending}", "validation": "*p3.*", "test": f"*/*p4{ending}"},
        },
    )


def _images(store: str, *, official: bool = False) -> Made:
    options, expected = _STORES[store]
    source = {"kind": "image_folder", "path": "", "store": store, **options}
    return _folder("image", source, picture, ".png", expected, official=official)


READER = """
import datetime
import numpy as np

ROWS = {rows}

def read(skip):
    for index, row in enumerate(ROWS):
        row |= {{"key": f"k{{index}}", "split": "train" if index % 5 else "test", "weight": row["weight"] or 0.25}}
        row["grid"] = np.full((2, 1), index, np.float32)
        yield {{name: value for name, value in row.items() if name not in skip}}
"""


def _array() -> Made:
    def features(index: int, row: dict[str, Any]) -> dict[str, Any]:
        return _stored(row | {"weight": row["weight"] or 0.25}, marked=False) | {"grid": [[index], [index]]}

    return Made(
        source={
            "kind": "array",
            "read": "reader_of_any:read",
            "target": "y",
            "text": ["note"],
        },
        write=lambda folder: (folder / "reader_of_any.py").write_text(READER.format(rows=ROWS)) and None,
        examples={f"k{index}": (row["y"], features(index, row)) for index, row in enumerate(ROWS) if row["y"]},
        bad=frozenset(("examples", index + 1, "y") for index, row in enumerate(ROWS) if not row["y"]),
        label_map=("maybe", "no", "yes"),
        splits={
            "fraction": {"train": 0.6, "validation": 0.2, "test": 0.2},
            "official": {"validation": 0.2},
            "group": {"column": "patient"},
            "time": {"column": "day"},
        },
        skip={
            "fraction": ["day", "patient", "split"],
            "official": ["day", "patient"],
            "group": ["day", "split"],
            "time": ["patient", "split"],
        },
    )


SOURCES: dict[str, Made] = {
    "csv": _table("csv", _write_csv),
    "parquet": _table("parquet", _write_parquet),
    "json": _table("jsonl", _write_jsonl, types={"day": "date"}),
    **{f"images {store}": _images(store) for store in _STORES},
    "images official": _images("encoded", official=True),
    "texts": _folder(
        "text",
        {"kind": "text_folder", "path": "", "encoding": "utf-16"},
        lambda index: f"Über {index}\r\n\tEnde".encode("utf-16"),
        ".txt",
        lambda index: f"Über {index}\r\n\tEnde".encode(),
    ),
    "array": _array(),
}
