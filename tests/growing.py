"""A table that grows file by file, and what must be true of its shards after each."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.config import Config, build_config
from tasks.prepare.directory import find_damages
from tasks.prepare.manifest import Shards
from tasks.prepare.scan import KEYS
from tasks.prepare.statistics import QUANTILES
from tests.any_source import read_split

SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}
RULES: dict[str, dict[str, Any]] = {
    "fraction": SHARES,
    "group": {"column": "who", **SHARES},
    "time": {"column": "day", "validation_from": "2026-01-06", "test_from": "2026-01-08"},
    "file": {"train": "*-0.csv", "validation": "*-1.csv", "test": 0.3},
}


def row_of(number: int) -> dict[str, Any]:
    return {
        "x": number / 8 - 3,
        "colour": ("rot", "grün", "blau", "gelb")[number % 4],
        "who": f"p{number * 5 % 7}",
        "day": f"2026-01-{1 + number % 10:02d}",
        "y": ("no", "yes", "maybe")[number % 3],
    }


def write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def config_of(folder: Path, rule: str = "fraction", **changes: Any) -> Config:
    source = {"kind": "table", "path": str(folder), "target": "y", "columns": ["x", "colour"]}
    source |= changes.pop("source", {})
    tree = {"source": source, "splits": {"kind": rule, **RULES[rule]}, "append": True, "shard_size": "2 KB"}
    return build_config({"name": "any", "data": tree | changes})


def ids_of(shards: Shards) -> dict[str, list[int]]:
    """Returns the ids of each split in the order of its shards."""
    manifest = shards.manifest()
    return {split: [each["id"] for each in read_split(shards.directory, manifest, split)] for split in manifest.splits}


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def check_grown(before: Shards, after: Shards) -> None:
    """All that was there is there still, as it was and where it was, and nothing of it was written again."""
    then, now = before.manifest(), after.manifest()
    assert now.generations[:-1] == then.generations
    new = now.generations[-1]
    assert (new.number, new.source_digest) == (len(now.generations), now.source_digest)
    ids_then, ids_now = ids_of(before), ids_of(after)
    for split, found in now.splits.items():
        old = then.splits[split].shards
        for was, shard in zip(old, found.shards, strict=False):
            assert shard == was.model_copy(update={"file": shard.file})
            assert (after.directory / shard.file).samefile(before.directory / was.file)
        written = found.shards[len(old) :]
        assert [(after.directory / shard.file).stat().st_nlink for shard in written] == [1] * len(written)
        assert new.num_shards[split] == len(written)
        assert new.num_examples[split] == sum(shard.num_examples for shard in written)
        assert ids_now[split][: len(ids_then[split])] == ids_then[split]
        assert ids_now[split] == sorted(set(ids_now[split]), key=ids_now[split].index)


def check_whole(shards: Shards, rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    """The shards hold these rows, each in one split under its place as id, and their statistics are of all of train."""
    manifest, found = shards.manifest(), dict[int, dict[str, Any]]()
    train: list[dict[str, Any]] = []
    for split, of_split in manifest.splits.items():
        examples = list(read_split(shards.directory, manifest, split))
        assert len(examples) == of_split.num_examples == shards.num_examples[split]
        assert Counter(manifest.label_map[each["label"]] for each in examples) == {
            name: number for name, number in zip(manifest.label_map, of_split.class_counts, strict=True) if number
        }
        assert found.keys().isdisjoint(each["id"] for each in examples)
        found |= {each["id"]: each for each in examples}
        train += examples if split == "train" else []
    assert sorted(found) == list(range(len(rows)))
    for id, row in enumerate(rows):
        assert found[id]["x"] == row["x"]
        assert found[id]["colour"] == row["colour"].encode()
        assert manifest.label_map[found[id]["label"]] == row["y"]
    table = pq.read_table(shards.directory / KEYS).to_pydict()
    assert (table["id"], table["key"]) == (list(range(len(rows))), list(keys))
    x = np.array([each["x"] for each in train])
    statistics = manifest.statistics["x"]
    assert (statistics.mean, statistics.std) == pytest.approx((x.mean(), x.std()), rel=1e-12)
    assert (statistics.min, statistics.max) == (x.min(), x.max())
    assert statistics.quantiles == {f"{q:g}": pytest.approx(np.quantile(x, q)) for q in QUANTILES}
    colours = Counter(each["colour"].decode() for each in train)
    assert dict(manifest.statistics["colour"].vocabulary or ()) == colours
    assert find_damages(shards.directory) == {}


def grow(folder: Path, numbers: range, file: str) -> None:
    write_rows(folder / file, [row_of(number) for number in numbers])
