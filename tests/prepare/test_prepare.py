"""Prepare: the shard directory is exact, reproducible, written once and healed."""

import gzip
import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.config import DataConfig
from tasks.download.download import download
from tasks.download.record import RawData
from tasks.errors import DataError
from tasks.files import COMPLETED, atomic_directory, digest_file, digest_json, verify
from tasks.prepare.directory import DirectoryPlan, plan_directory
from tasks.prepare.generations import data_digest
from tasks.prepare.prepare import prepare
from tasks.size import Size
from tasks.splits import FractionSplits

CONFIG = DataConfig.model_validate({"shard_size": "55 KB"})
REPOSITORY = Path(__file__).parents[2]

# The stage alone, as a process of its own; {hook} runs before it.
STAGE = """
import sys
from pathlib import Path
from tasks.config import DataConfig
from tasks.download.download import download
from tasks.prepare import frame, spool
from tasks.prepare.prepare import prepare
{hook}
config = DataConfig.model_validate({{"shard_size": "55 KB"}})
shards = prepare("digits", config, download(config, Path(sys.argv[1])), Path(sys.argv[1]))
print(shards.reused)
"""


def _start(workspace: Path, hook: str = "") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", STAGE.format(hook=hook), str(workspace)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )


def _contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.fixture
def raw(tmp_path: Path) -> RawData:
    return download(CONFIG, tmp_path)


def test_directory_holds_the_shards_of_the_manifest_and_nothing_else(tmp_path: Path, raw: RawData) -> None:
    shards = prepare("digits", CONFIG, raw, tmp_path)
    assert shards.directory == tmp_path / "data" / shards.data_digest / "digits" / "1.0.0"
    assert sorted(file.name for file in shards.directory.iterdir()) == [
        COMPLETED,
        "dataset_info.json",
        "digits-test.tfrecord-00000-of-00001",
        "digits-train.tfrecord-00000-of-00004",
        "digits-train.tfrecord-00001-of-00004",
        "digits-train.tfrecord-00002-of-00004",
        "digits-train.tfrecord-00003-of-00004",
        "digits-validation.tfrecord-00000-of-00001",
        "features.json",
        "keys.parquet",
        "label.labels.txt",
        "manifest.json",
    ]
    assert shards.num_shards == 6
    assert shards.num_examples == {"train": 1437, "validation": 180, "test": 180}


def test_manifest_figures_are_those_of_the_files(tmp_path: Path, raw: RawData) -> None:
    shards = prepare("digits", CONFIG, raw, tmp_path)
    manifest = shards.manifest()
    assert (manifest.data_digest, manifest.source_digest) == (shards.data_digest, raw.digest)
    assert [shard.num_examples for shard in manifest.splits["train"].shards] == [359, 359, 359, 360]
    for split in manifest.splits.values():
        assert sum(shard.num_examples for shard in split.shards) == split.num_examples == sum(split.class_counts)
        for shard in split.shards:
            file = shards.directory / shard.file
            assert (file.stat().st_size, digest_file(file)) == (shard.size_bytes, shard.sha256)
    counts = np.array([split.class_counts for split in manifest.splits.values()]).sum(axis=0)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of scikit-learn's description


def test_same_input_gives_same_bytes(tmp_path: Path, raw: RawData) -> None:
    first = prepare("digits", CONFIG, raw, tmp_path / "first")
    second = prepare("digits", CONFIG, raw, tmp_path / "second")
    assert _contents(first.directory) == _contents(second.directory)


def test_bytes_of_the_digits_never_change(tmp_path: Path, raw: RawData) -> None:
    splits = prepare("digits", CONFIG, raw, tmp_path).manifest().splits
    digests = [shard.sha256 for split in splits.values() for shard in split.shards]
    # If this fails on purpose, raise FORMAT_VERSION: shards of the old bytes would pass for the new.
    assert digest_json(digests) == "fd69ac85487a5f94b3b2666b29a4a9c75c90be68ae7a3abfc5f1c1f601521ef4"


def test_second_prepare_writes_nothing(tmp_path: Path, raw: RawData) -> None:
    first = prepare("digits", CONFIG, raw, tmp_path)
    before = {file: file.stat().st_mtime_ns for file in first.directory.iterdir()}
    assert prepare("digits", CONFIG, raw, tmp_path) == first.model_copy(update={"reused": True})
    assert {file: file.stat().st_mtime_ns for file in first.directory.iterdir()} == before


def test_digest_follows_name_source_and_every_data_field() -> None:
    changed = [
        ("digits", CONFIG, "source"),
        ("others", CONFIG, "source"),
        ("digits", CONFIG, "other source"),
        ("digits", CONFIG.model_copy(update={"seed": 1}), "source"),
        ("digits", CONFIG.model_copy(update={"splits": FractionSplits(train=0.6, validation=0.2, test=0.2)}), "source"),
        ("digits", CONFIG.model_copy(update={"shard_size": Size("1 MB")}), "source"),
    ]
    assert len({data_digest(*arguments) for arguments in changed}) == len(changed)


@pytest.mark.parametrize("damage", ["no COMPLETED", "cut at a record", "one bit", "missing shard"])
def test_damaged_directory_is_written_again_and_the_reason_is_said(
    tmp_path: Path, raw: RawData, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    shards = prepare("digits", CONFIG, raw, tmp_path)
    whole = _contents(shards.directory)
    shard = shards.manifest().splits["train"].shards[2]
    file = shards.directory / shard.file
    data = file.read_bytes()
    match damage:
        case "no COMPLETED":
            (shards.directory / COMPLETED).unlink()
        case "cut at a record":
            file.write_bytes(data[: shard.offsets[-1]])
        case "one bit":
            file.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
        case "missing shard":
            file.unlink()
    with caplog.at_level(logging.WARNING, "millstream"):
        assert not prepare("digits", CONFIG, raw, tmp_path).reused
    assert (COMPLETED if damage == "no COMPLETED" else shard.file) in caplog.text
    assert _contents(shards.directory) == whole


KILL_IN = {
    "scan": ("1.0.0.scan/frames", "frame.crc32c", 1000),
    "write": ("1.0.0.incomplete/*.tfrecord-*", "spool.Spool.frames", 2),
}


@pytest.mark.parametrize("phase", KILL_IN)
def test_killed_anywhere_is_healed_to_the_same_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, phase: str
) -> None:
    left_behind, function, call = KILL_IN[phase]
    kill = f"""
import itertools, os, signal
whole, calls = {function}, itertools.count()
def dying(*arguments):
    if next(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*arguments)
{function} = dying
"""
    with _start(tmp_path, kill) as child:
        assert child.wait() == -signal.SIGKILL
    assert not list(tmp_path.glob(f"data/**/{COMPLETED}"))
    assert list(tmp_path.glob(f"data/*/digits/{left_behind}"))
    finished = {file.stem: file.stat().st_mtime_ns for file in tmp_path.glob("data/*/digits/1.0.0.scan/finished/[!.]*")}
    with caplog.at_level(logging.INFO, "millstream"):
        shards = prepare("digits", CONFIG, download(CONFIG, tmp_path), tmp_path)
    assert not shards.reused
    assert all((shards.directory / file).stat().st_mtime_ns <= written for file, written in finished.items())
    assert len(finished) >= (phase == "write")
    assert ("going on from" in caplog.text) == (phase == "write")
    untouched = prepare("digits", CONFIG, download(CONFIG, tmp_path), tmp_path / "untouched")
    assert _contents(shards.directory) == _contents(untouched.directory)
    assert [entry.name for entry in shards.directory.parent.iterdir()] == ["1.0.0"]


def test_number_of_workers_changes_no_byte(tmp_path: Path, raw: RawData) -> None:
    one, four = (CONFIG.model_copy(update={"num_workers": number}) for number in (1, 4))
    assert data_digest("digits", one, "source") == data_digest("digits", four, "source")
    first = prepare("digits", one, raw, tmp_path / "first")
    second = prepare("digits", four, raw, tmp_path / "second")
    assert _contents(first.directory) == _contents(second.directory)


def test_two_processes_at_once_write_once(tmp_path: Path) -> None:
    children = [_start(tmp_path), _start(tmp_path)]
    answers = sorted(child.communicate()[0].split()[-1] for child in children)
    assert answers == ["False", "True"]


def test_download_and_prepare_import_no_tensorflow(tmp_path: Path) -> None:
    spy = """
import atexit
heavy = {"tensorflow", "keras", "tensorflow_datasets", "sklearn", "mlflow", "prefect"}
atexit.register(lambda: print(heavy & set(sys.modules)))
"""
    with _start(tmp_path, spy) as child:
        assert child.communicate()[0].split() == ["False", "set()"]


def test_files_that_the_kernel_refuses_are_told_and_nothing_is_left(tmp_path: Path, raw: RawData) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))  # as a full disk would
        with pytest.raises(DataError, match=r"digits: cannot be written \(File too large\); make room"):
            prepare("digits", CONFIG, raw, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert list((tmp_path / "data").rglob("*/*/*")) == []
    assert prepare("digits", CONFIG, raw, tmp_path).num_examples["train"] > 0


def test_disk_that_fills_up_while_shards_are_written_costs_none_that_is_finished(
    tmp_path: Path, raw: RawData, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    untouched = prepare("digits", CONFIG, raw, tmp_path / "untouched")
    largest = max(shard.size_bytes for shard in untouched.manifest().splits["train"].shards)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def no_room_any_more(*arguments: Any, **keywords: Any) -> DirectoryPlan:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, most))  # one shard is as large as this
        return plan_directory(*arguments, **keywords)

    monkeypatch.setattr("tasks.prepare.prepare.plan_directory", no_room_any_more)
    try:
        with pytest.raises(DataError, match=r"digits: cannot be written \(File too large\); make room"):
            prepare("digits", CONFIG, raw, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    monkeypatch.undo()
    assert not list(tmp_path.glob(f"data/*/digits/*/{COMPLETED}"))
    finished = list(tmp_path.glob("data/*/digits/1.0.0.scan/finished/[!.]*"))
    assert finished
    with caplog.at_level(logging.INFO, "millstream"):
        shards = prepare("digits", CONFIG, raw, tmp_path)
    assert "going on from" in caplog.text
    assert _contents(shards.directory) == _contents(untouched.directory)


def test_damaged_raw_data_is_refused(tmp_path: Path, raw: RawData) -> None:
    file = raw.directory / "digits.csv.gz"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match=r"digits\.csv\.gz: content has changed"):
        prepare("digits", CONFIG, raw, tmp_path)
    assert not list(tmp_path.glob(f"data/**/{COMPLETED}"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,2,3\n", "has 3 columns, not 64 pixels and a label"),
        (",".join(["17"] * 65), r"a pixel outside 0\.\.16"),
        (",".join(["10"] * 65), r"a label outside 0\.\.9"),
        ("a,b\n", "no readable csv"),
    ],
)
def test_source_that_is_not_the_digits_is_refused(tmp_path: Path, raw: RawData, text: str, reason: str) -> None:
    with atomic_directory(raw.directory) as directory:
        (directory / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))
    verify(raw.directory)
    with pytest.raises(DataError, match=reason):
        prepare("digits", CONFIG, raw, tmp_path)
    assert not list(tmp_path.glob(f"data/**/{COMPLETED}"))
