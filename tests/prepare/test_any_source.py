"""Whole sources: of every kind, the shards hold each good example once, as it is, and every bad one has its reason."""

import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.download.download import source_digest
from tasks.files import COMPLETED, digest_file
from tasks.prepare.manifest import QUARANTINE, ShardManifest, Shards
from tasks.prepare.prepare import verify_shards
from tasks.prepare.scan import KEYS
from tests.any_source import REPOSITORY, ROWS, SOURCES, Made, prepared, read_split

pytestmark = pytest.mark.usefixtures("workers")

LONG_AGO = 1_000_000_000  # seconds since 1970: what is written now has another time
KINDS = [(name, kind) for name, made in SOURCES.items() for kind in made.splits]
ON_DISK = [name for name, made in SOURCES.items() if "path" in made.source]


@dataclass(frozen=True)
class Prepared:
    """A source, where it lies, and its shards."""

    made: Made
    folder: Path
    workspace: Path
    shards: Shards
    manifest: ShardManifest
    keys: dict[int, str]
    """By id."""
    splits: dict[str, list[dict[str, Any]]]
    """The examples in the files of each split."""


@pytest.fixture(scope="module")
def get(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Prepared]:
    """The shards of a source of SOURCES by its name and the kind of splits; made once."""
    made_so_far: dict[tuple[str, str | None], Prepared] = {}

    def get(name: str, kind: str | None = None) -> Prepared:
        made = SOURCES[name]
        kind = kind or next(iter(made.splits))
        if (name, kind) not in made_so_far:
            top = tmp_path_factory.mktemp("source")
            (top / "data").mkdir()
            made.write(top / "data")
            shards = made.prepare(top / "data", top / "workspace", kind)
            manifest = shards.manifest()
            keys = pq.read_table(shards.directory / KEYS).to_pydict()
            made_so_far[name, kind] = Prepared(
                made=made,
                folder=top / "data",
                workspace=top / "workspace",
                shards=shards,
                manifest=manifest,
                keys=dict(zip(keys["id"], keys["key"], strict=True)),
                splits={split: list(read_split(shards.directory, manifest, split)) for split in manifest.splits},
            )
        return made_so_far[name, kind]

    return get


def _contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def _right(expected: Any, stored: Any) -> bool:
    return bool(expected(stored) if callable(expected) else type(stored) is type(expected) and stored == expected)


@pytest.mark.parametrize("name", SOURCES)
def test_every_good_example_is_in_the_files_once_and_as_it_is(get: Callable[..., Prepared], name: str) -> None:
    found = get(name)
    examples = [example for split in found.splits.values() for example in split]
    assert sorted(found.keys.values()) == sorted(found.made.examples)
    assert sorted(example["id"] for example in examples) == sorted(found.keys)
    for example in examples:
        label, features = found.made.examples[found.keys[example["id"]]]
        assert found.manifest.label_map[example["label"]] == label
        assert set(example) == {*features, "label", "id"}
        assert [feature for feature, value in features.items() if not _right(value, example[feature])] == []


@pytest.mark.parametrize("name", SOURCES)
def test_every_bad_example_is_listed_with_its_place_and_counted(get: Callable[..., Prepared], name: str) -> None:
    found = get(name)
    listed = [json.loads(line) for line in (found.shards.directory / QUARANTINE).read_text().splitlines()]
    assert {(bad["path"], bad["row"], bad["column"]) for bad in listed} == found.made.bad
    assert all(bad["reason"] and "\n" not in bad["reason"] for bad in listed)
    assert found.shards.num_bad == found.manifest.num_bad == len(listed) == len(found.made.bad)


@pytest.mark.parametrize("name", SOURCES)
def test_the_manifest_says_what_is_in_the_files(get: Callable[..., Prepared], name: str) -> None:
    found = get(name)
    assert found.manifest.label_map == found.made.label_map
    assert set(found.manifest.features) == {*found.manifest.inputs, "label", "id"} | {
        feature.missing for feature in found.manifest.features.values() if feature.missing
    }
    for split, examples in found.splits.items():
        told = found.manifest.splits[split]
        counts = Counter(example["label"] for example in examples)
        assert told.class_counts == tuple(counts[label] for label in range(len(found.made.label_map)))
        assert told.num_examples == len(examples) == sum(shard.num_examples for shard in told.shards)
        assert found.shards.num_examples[split] == len(examples)
        for shard in told.shards:
            file = found.shards.directory / shard.file
            assert (file.stat().st_size, digest_file(file)) == (shard.size_bytes, shard.sha256)


@pytest.mark.parametrize("name", SOURCES)
def test_statistics_are_those_of_the_training_split(get: Callable[..., Prepared], name: str) -> None:
    found = get(name)
    train, features = found.splits["train"], found.manifest.features
    statistics = dict(found.manifest.statistics)
    for image in (name for name, feature in features.items() if feature.kind == "image"):
        sizes = np.array([Image.open(io.BytesIO(example[image])).size for example in train])
        for values, side in zip(sizes.T, ("width", "height"), strict=True):
            told = statistics.pop(f"{image}.{side}")
            assert (told.min, told.max, told.mean) == (values.min(), values.max(), pytest.approx(values.mean()))
    for pixels in (name for name, feature in features.items() if (feature.kind, feature.dtype) == ("tensor", "uint8")):
        brightness, told = [np.mean(example[pixels]) for example in train], statistics.pop(f"{pixels}.brightness")
        assert (told.min, told.max, told.mean) == pytest.approx((min(brightness), max(brightness), np.mean(brightness)))
    assert set(statistics) == {name for name, feature in features.items() if feature.kind in {"number", "category"}}
    for feature, told in statistics.items():
        mark = features[feature].missing
        values = [example[feature] for example in train if mark is None or not example[mark]]
        assert told.num_missing == len(train) - len(values)
        if features[feature].kind == "category":
            counts = Counter(value.decode() for value in values).items()
            assert told.vocabulary == tuple(sorted(counts, key=lambda pair: (-pair[1], pair[0])))
        else:
            assert (told.min, told.max) == (min(values), max(values))
            assert (told.mean, told.std) == pytest.approx((np.mean(values), np.std(values)), rel=1e-13)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_kind_of_splits_parts_the_examples_as_it_says(get: Callable[..., Prepared], name: str, kind: str) -> None:
    found = get(name, kind)
    keys = {split: [found.keys[example["id"]] for example in examples] for split, examples in found.splits.items()}
    assert all(keys.values())
    assert sorted(key for split in keys.values() for key in split) == sorted(found.made.examples)  # each in one only

    by_row = {
        key: ROWS[int(key.removeprefix("k")) if found.made.source["kind"] == "array" else id]
        for id, key in found.keys.items()
        if found.made.source["kind"] in {"array", "table"}
    }

    def of(split: str, what: Callable[[str], Any]) -> set[Any]:
        return {what(key) for key in keys[split]}

    match kind:
        case "fraction":
            assert [len(keys[split]) for split in keys] == [
                pytest.approx(share * len(found.made.examples), abs=1) for share in (0.6, 0.2, 0.2)
            ]
            for counts in zip(*(split.class_counts for split in found.manifest.splits.values()), strict=True):
                assert counts == pytest.approx([share * sum(counts) for share in (0.6, 0.2, 0.2)], abs=1)
        case "group":
            groups = {key: by_row[key]["patient"] if by_row else key.rpartition("-")[2] for key in found.made.examples}
            seen = [group for split in keys for group in of(split, groups.__getitem__)]
            assert len(seen) == len(set(seen)) == len(set(groups.values()))
        case "time":
            days = [of(split, lambda key: by_row[key]["day"]) for split in ("train", "validation", "test")]
            assert max(days[0]) < min(days[1]) <= max(days[1]) < min(days[2])
        case "official" if by_row:
            assert of("test", lambda key: int(key.removeprefix("k")) % 5) == {0}
            assert of("train", lambda key: int(key.removeprefix("k")) % 5) == {1, 2, 3, 4}
        case "official":
            assert {split: of(split, lambda key: key.split("/")[0]) for split in keys} == {
                "train": {"teach"},
                "validation": {"choose"},
                "test": {"judge"},
            }
        case "file" if by_row:
            assert [of(split, lambda key: key.split(".")[0]) for split in keys] == [{"part-1"}, {"part-2"}, {"part-10"}]
        case "file":
            assert [of(split, lambda key: key[-6:-4]) for split in keys] == [{"p0", "p1", "p2"}, {"p3"}, {"p4"}]


@pytest.mark.parametrize("name", SOURCES)
def test_same_data_elsewhere_give_the_same_bytes_under_the_same_digest(
    get: Callable[..., Prepared], tmp_path: Path, name: str
) -> None:
    found = get(name)
    elsewhere = tmp_path / "a place with a longer name" / "data [2]"
    elsewhere.mkdir(parents=True)
    found.made.write(elsewhere)
    again = found.made.prepare(elsewhere, tmp_path / "workspace")
    assert not again.reused
    assert again.data_digest == found.shards.data_digest
    assert _contents(again.directory) == _contents(found.shards.directory)


def _copy(found: Prepared, tmp_path: Path) -> tuple[Made, Path, Path]:
    """Returns a source, the folder to which its data were written, and a workspace, for a test that spoils them."""
    folder = tmp_path / "data"
    folder.mkdir()
    found.made.write(folder)
    return found.made, folder, tmp_path / "workspace"


@pytest.mark.parametrize("name", ON_DISK)
def test_touched_files_write_nothing_and_a_changed_or_added_one_is_other_data(
    get: Callable[..., Prepared], tmp_path: Path, name: str
) -> None:
    made, folder, workspace = _copy(get(name), tmp_path)
    config = made.config(folder, max_bad_fraction=0.5)
    first = prepared(config, workspace)
    for file in first.directory.iterdir():
        os.utime(file, (LONG_AGO, LONG_AGO))
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    for file in files:
        os.utime(file, (LONG_AGO, LONG_AGO))
    assert prepared(config, workspace) == first.model_copy(update={"reused": True})
    assert {file.stat().st_mtime for file in first.directory.iterdir()} == {LONG_AGO}

    added = files[-1].with_name(f"added-p3{files[-1].suffix}")
    added.write_bytes(files[-1].read_bytes())
    more = prepared(config, workspace)
    assert not more.reused
    assert more.data_digest != first.data_digest
    assert sum(more.num_examples.values()) > sum(first.num_examples.values())

    os.replace(added, files[-2])  # other bytes under an old name
    os.utime(files[-2], (LONG_AGO, LONG_AGO))
    changed = prepared(config, workspace)
    assert not changed.reused
    assert len({first.data_digest, more.data_digest, changed.data_digest}) == 3


def test_an_array_is_known_by_the_source_of_its_reader(get: Callable[..., Prepared], tmp_path: Path) -> None:
    made = get("array").made
    made.write(tmp_path)
    file = tmp_path / "reader_of_any.py"
    first = made.prepare(tmp_path, tmp_path / "workspace")
    os.utime(file, (LONG_AGO, LONG_AGO))
    assert made.prepare(tmp_path, tmp_path / "workspace").reused
    file.write_text(file.read_text().replace("'age': -20,", "'age': -21,"))
    changed = made.prepare(tmp_path, tmp_path / "workspace")
    assert not changed.reused
    assert changed.data_digest != first.data_digest
    examples = read_split(changed.directory, changed.manifest(), "train")
    assert {"age": -21, "note": ROWS[0]["note"].encode()}.items() <= next(e for e in examples if e["id"] == 0).items()


@pytest.mark.parametrize("name", ["csv", "images jpeg", "texts", "array"])
def test_damaged_files_are_named_and_mended_to_the_same_bytes(
    get: Callable[..., Prepared], tmp_path: Path, name: str
) -> None:
    made, folder, workspace = _copy(get(name), tmp_path)
    config = made.config(folder, num_shards=3)
    shards = prepared(config, workspace)
    whole = _contents(shards.directory)
    shard = shards.directory / shards.manifest().splits["train"].shards[1].file
    for file in shards.directory.iterdir():
        os.utime(file, (LONG_AGO, LONG_AGO))
    shard.write_bytes(shard.read_bytes()[:-7])
    (shards.directory / QUARANTINE).unlink()
    (shards.directory / KEYS).write_bytes(b"")
    damaged = {shard.name, QUARANTINE, KEYS}
    found = verify_shards("any", config.data, source_digest(config.data, workspace), workspace)
    assert set(found.damages) == damaged
    assert not prepared(config, workspace).reused
    assert _contents(shards.directory) == whole
    rewritten = {file.name for file in shards.directory.iterdir() if file.stat().st_mtime != LONG_AGO}
    assert rewritten == damaged


@pytest.mark.parametrize("name", ["csv", "images raw", "texts", "array"])
@pytest.mark.parametrize("num_shards", [1, 5, 25])
def test_num_shards_is_met_exactly(get: Callable[..., Prepared], tmp_path: Path, name: str, num_shards: int) -> None:
    found = get(name)
    shards = found.made.prepare(found.folder, tmp_path, num_shards=num_shards)
    sizes = [shard.num_examples for shard in shards.manifest().splits["train"].shards]
    assert len(sizes) == num_shards
    assert sum(sizes) == found.manifest.splits["train"].num_examples
    assert max(sizes) - min(sizes) <= 1


STAGE = """
import sys
from pathlib import Path
from tasks.config import load_config
from tasks.download.download import download
from tasks.prepare.prepare import prepare
config = load_config(sys.argv[1])
shards = prepare(config.name, config.data, download(config.data, Path(sys.argv[2])), Path(sys.argv[2]))
print(shards.reused)
"""


def test_two_processes_at_once_write_once(get: Callable[..., Prepared], tmp_path: Path) -> None:
    found = get("csv")
    (tmp_path / "any.yaml").write_text(json.dumps(found.made.config(found.folder).model_dump(mode="json")))
    command = [sys.executable, "-c", STAGE, tmp_path / "any.yaml", tmp_path / "workspace"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    assert sorted(process.communicate()[0].strip() for process in processes) == ["False", "True"]
    (completed,) = tmp_path.glob(f"workspace/data/**/{COMPLETED}")
    assert _contents(completed.parent) == _contents(found.shards.directory)
