"""The shard directory: whatever is damaged is found, named, and healed to the same bytes, and nothing else touched."""

import os
import random
from pathlib import Path

import pytest

from tasks.config import DataConfig
from tasks.download.download import download
from tasks.errors import DataError
from tasks.files import COMPLETED
from tasks.prepare.digits import Digits
from tasks.prepare.directory import DirectoryPlan, find_damages, plan_directory, repair_directory, write_directory
from tasks.prepare.manifest import MANIFEST, ShardManifest
from tasks.prepare.prepare import find_shards, prepare, verify_shards
from tasks.prepare.scan import KEYS, scan

CONFIG = DataConfig.model_validate({"shard_size": "20 KB"})
LONG_AGO = 1_000_000_000  # seconds since 1970: what is written now has another time


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> DirectoryPlan:
    raw = download(CONFIG, tmp_path_factory.mktemp("workspace"))
    scanned = scan(Digits(raw.directory), tmp_path_factory.mktemp("scan"), seed=0, max_bad_fraction=0)
    return plan_directory("digits", CONFIG, scanned, data_digest="0" * 16, source_digest=raw.digest)


@pytest.fixture
def directory(tmp_path: Path, plan: DirectoryPlan) -> Path:
    directory = tmp_path / "1.0.0"
    write_directory(directory, plan)
    return directory


def _contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def _damage(directory: Path, chance: random.Random) -> dict[str, str]:
    """Damages one to three things at random, and returns what is to be said of each file."""
    shards = {
        shard.file: shard
        for split in ShardManifest.read(directory / MANIFEST).splits.values()
        for shard in split.shards
    }
    victims = chance.sample(sorted(shards), 6)
    said = {}
    for _ in range(chance.randint(1, 3)):
        name = victims.pop()
        file, data = directory / name, (directory / name).read_bytes()
        match chance.choice(["cut", "cut at a record", "flip", "zero", "swap", "delete", "append", "foreign"]):
            case "cut":
                size = chance.randrange(1, len(data))
                file.write_bytes(data[:size])
                said[name] = f"has {size} bytes, not {len(data)}"
            case "cut at a record":
                size = chance.choice(shards[name].offsets[1:])
                file.write_bytes(data[:size])
                said[name] = f"has {size} bytes, not {len(data)}"
            case "flip":
                place = chance.randrange(len(data))
                flipped = data[place] ^ 1 << chance.randrange(8)
                file.write_bytes(data[:place] + bytes([flipped]) + data[place + 1 :])
                said[name] = "content has changed since it was written"
            case "zero":
                file.write_bytes(b"")
                said[name] = f"has 0 bytes, not {len(data)}"
            case "swap":
                other = victims.pop()
                file.write_bytes((directory / other).read_bytes())
                (directory / other).write_bytes(data)
                said |= {name: f"holds what belongs into {other}", other: f"holds what belongs into {name}"}
            case "delete":
                file.unlink()
                said[name] = "missing"
            case "append":
                file.write_bytes(data + b"\0")
                said[name] = f"has {len(data) + 1} bytes, not {len(data)}"
            case "foreign":
                (directory / f"{name}.copy").write_bytes(data)
                said[f"{name}.copy"] = "does not belong here"
    return said


def test_200_random_damages_are_each_found_named_and_healed_to_the_same_bytes(
    directory: Path, plan: DirectoryPlan
) -> None:
    whole, chance = _contents(directory), random.Random(5)  # noqa: S311  # nothing secret
    for _ in range(200):
        for file in directory.iterdir():
            os.utime(file, (LONG_AGO, LONG_AGO))
        said = _damage(directory, chance)
        damaged = find_damages(directory)
        assert damaged == said
        repair_directory(directory, plan, damaged)
        assert _contents(directory) == whole
        assert {
            file.name for file in directory.iterdir() if file.stat().st_mtime != LONG_AGO
        } == said.keys() & whole.keys()


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json", "label.labels.txt", KEYS, MANIFEST, COMPLETED])
def test_damaged_metadata_is_healed_too(tmp_path: Path, name: str) -> None:
    raw = download(CONFIG, tmp_path)
    shards = prepare("digits", CONFIG, raw, tmp_path)
    whole = _contents(shards.directory)
    (shards.directory / name).write_bytes(whole[name][:-20])
    assert not prepare("digits", CONFIG, raw, tmp_path).reused
    assert _contents(shards.directory) == whole


def test_a_receipt_that_lies_is_noticed_and_all_is_written_again(directory: Path, plan: DirectoryPlan) -> None:
    whole = _contents(directory)
    text = (directory / COMPLETED).read_text()
    sha256 = text.split('"sha256": "')[3][:64]
    (directory / COMPLETED).write_text(text.replace(sha256, "0" * 64))
    repair_directory(directory, plan, find_damages(directory))
    assert _contents(directory) == whole


def test_verifying_writes_nothing_and_training_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    raw = download(CONFIG, tmp_path)
    shards = prepare("digits", CONFIG, raw, tmp_path)
    train = shards.manifest().splits["train"].shards
    (shards.directory / train[0].file).write_bytes(b"")
    (shards.directory / train[1].file).unlink()
    (shards.directory / train[2].file).unlink()
    (shards.directory / train[2].file).mkdir()
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    found = verify_shards("digits", CONFIG, raw.digest, tmp_path)
    expected = {
        train[0].file: f"has 0 bytes, not {train[0].size_bytes}",
        train[1].file: "missing",
        train[2].file: "missing",
    }
    assert (found.directory, found.damages) == (shards.directory, expected)
    with pytest.raises(DataError) as refused:
        find_shards("digits", CONFIG, raw, tmp_path)
    listed = ", ".join(f"{name} ({damage})" for name, damage in expected.items())
    assert str(refused.value) == f"{shards.directory}: damaged: {listed}; mend it with `millstream prepare --repair`"
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    assert not prepare("digits", CONFIG, raw, tmp_path).reused
    assert verify_shards("digits", CONFIG, raw.digest, tmp_path).damages == {}


def test_verifying_what_was_never_prepared_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no shards for this config; write them with `millstream prepare`"):
        verify_shards("digits", CONFIG, "source", tmp_path)
