"""Generations: what is appended to what, what is refused, and what a kill or damage leaves."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.config import build_config
from tasks.download.download import download, source_digest
from tasks.errors import ConfigError, DataError
from tasks.files import COMPLETED
from tasks.prepare.base import FILES
from tasks.prepare.manifest import MANIFEST
from tasks.prepare.prepare import find_digest, find_shards, verify_shards
from tasks.prepare.scan import KEYS
from tests.any_source import REPOSITORY, prepared
from tests.growing import check_grown, config_of, contents, grow, ids_of, row_of, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source of 40 rows in one file."""
    grow(tmp_path / "source", range(40), "first.csv")
    return tmp_path / "source"


KILL = """
import itertools, os, signal, sys
from pathlib import Path
from tasks.config import load_config
from tasks.download.download import download
from tasks.prepare import directory
from tasks.prepare.prepare import prepare

def dying(*arguments, whole=directory.{function}, calls=itertools.count()):
    if next(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(*arguments)

directory.{function} = dying
config, workspace = load_config(sys.argv[1]), Path(sys.argv[2])
prepare(config.name, config.data, download(config.data, workspace), workspace)
"""


@pytest.mark.parametrize(("function", "call"), [("_link", 1), ("write_files", 0)])
def test_killed_while_it_appends_nothing_is_trusted_and_it_is_healed_to_the_same_bytes(
    tmp_path: Path, folder: Path, function: str, call: int
) -> None:
    config, file = config_of(folder), tmp_path / "any.yaml"
    file.write_text(config.model_dump_json())
    killed, untouched = tmp_path / "killed", tmp_path / "untouched"
    prepared(config, untouched)
    first = prepared(config, killed)
    before = contents(first.directory)
    grow(folder, range(40, 60), "second.csv")
    done = subprocess.run(
        [sys.executable, "-c", KILL.format(function=function, call=call), file, killed],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert len(list(killed.glob("data/*/any/1.0.0.incomplete/*-of-*"))) > 1  # new ones, and a linked one at least
    assert [marker.parent for marker in killed.glob(f"data/**/{COMPLETED}")] == [first.directory]
    with pytest.raises(DataError, match="no shards for this config"):
        find_shards(config.name, config.data, download(config.data, killed), killed)
    shards = prepared(config, killed)
    assert contents(shards.directory) == contents(prepared(config, untouched).directory)
    assert contents(first.directory) == before
    assert [entry.name for entry in shards.directory.parent.iterdir()] == ["1.0.0"]


@pytest.mark.parametrize("change", ["changed", "vanished"])
def test_a_file_that_is_not_as_it_was_has_all_written_anew_and_that_is_said(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    grow(folder, range(40, 60), "old.csv")
    first = prepared(config_of(folder), tmp_path)
    grow(folder, range(60, 80), "second.csv")
    if change == "changed":
        grow(folder, range(41, 61), "old.csv")
    else:
        (folder / "old.csv").unlink()
    with caplog.at_level(logging.WARNING, "millstream"):
        shards = prepared(config_of(folder), tmp_path)
    assert (
        f"{first.directory} cannot be appended to: old.csv has {change} since; writing all shards anew" in caplog.text
    )
    assert [each.number for each in shards.manifest().generations] == [1]
    assert shards.data_digest == prepared(config_of(folder), tmp_path / "other").data_digest


def test_of_several_directories_the_one_with_most_of_the_examples_is_appended_to(tmp_path: Path, folder: Path) -> None:
    config = config_of(folder)
    prepared(config, tmp_path)
    grow(folder, range(40, 50), "second.csv")
    second = prepared(config, tmp_path)
    (folder / "second.csv").rename(tmp_path / "second.csv")
    assert prepared(config, tmp_path).reused
    (tmp_path / "second.csv").rename(folder / "second.csv")
    assert prepared(config, tmp_path).directory == second.directory
    grow(folder, range(50, 60), "third.csv")
    digest = find_digest(
        config.name, config.data, source_digest(config.data, tmp_path), tmp_path
    )  # a run begins with it
    third = prepared(config, tmp_path)
    assert [each.number for each in third.manifest().generations] == [1, 2, 3]
    check_grown(second, third)
    assert digest == third.data_digest
    assert find_digest(config.name, config.data, third.manifest().source_digest, tmp_path) == digest
    # What came at once is split as one, so that its bytes and its name are others.
    whole = prepared(config, tmp_path / "other")
    assert whole.data_digest != third.data_digest
    assert len(whole.manifest().generations) == 1


def test_shards_of_other_settings_are_not_appended_to(tmp_path: Path, folder: Path) -> None:
    for changes in ({"seed": 1}, {"compression": "gzip"}, {"append": False}):
        prepared(config_of(folder, **changes), tmp_path)
    grow(folder, range(40, 50), "second.csv")
    assert len(prepared(config_of(folder), tmp_path).manifest().generations) == 1
    plain = prepared(config_of(folder, append=False), tmp_path)
    assert plain.manifest().generations == ()
    assert not (plain.directory / FILES).exists()


def test_where_no_links_can_be_made_shards_are_copied(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepared(config_of(folder), tmp_path)
    prepared(config_of(folder), tmp_path / "linked")
    grow(folder, range(40, 50), "second.csv")
    linked = prepared(config_of(folder), tmp_path / "linked")

    def no_links(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    copied = prepared(config_of(folder), tmp_path)
    assert {file.stat().st_nlink for file in first.directory.iterdir()} == {1}
    assert contents(copied.directory) == contents(linked.directory)


def test_damage_is_mended_from_what_was_appended_to_unless_that_is_gone(tmp_path: Path, folder: Path) -> None:
    config = config_of(folder)
    first = prepared(config, tmp_path)
    grow(folder, range(40, 60), "second.csv")
    shards = prepared(config, tmp_path)
    whole = contents(shards.directory)
    train = shards.manifest().splits["train"].shards
    digest = source_digest(config.data, tmp_path)
    for name in (train[0].file, train[-1].file, KEYS, FILES, MANIFEST, COMPLETED):
        (shards.directory / name).unlink()
        if name not in (MANIFEST, COMPLETED):
            found = verify_shards(config.name, config.data, digest, tmp_path)
            assert (found.directory, found.damages) == (shards.directory, {name: "missing"})
        assert prepared(config, tmp_path) == shards
        assert contents(shards.directory) == whole
    check_grown(first, shards)

    link = shards.directory / train[0].file
    link.write_bytes(link.read_bytes()[:-1])  # a disk that forgets: the one file that has both names
    with pytest.raises(DataError, match=rf"{first.directory}/.* bytes, not .*; delete {first.directory} and run again"):
        prepared(config, tmp_path)
    for file in first.directory.iterdir():
        file.unlink()
    first.directory.rmdir()
    with pytest.raises(DataError, match=rf"cannot be mended, for {first.directory}, .* is gone; delete"):
        prepared(config, tmp_path)
    for file in shards.directory.iterdir():
        file.unlink()
    assert [each.number for each in prepared(config, tmp_path).manifest().generations] == [1]


def test_what_cannot_be_read_of_older_shards_is_said(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = prepared(config_of(folder), tmp_path)
    grow(folder, range(40, 50), "second.csv")
    (first.directory / FILES).write_bytes(b"nothing")
    with pytest.raises(DataError, match=rf"{FILES}: cannot be read .*; delete {first.directory} and run again"):
        prepared(config_of(folder), tmp_path)
    (first.directory / MANIFEST).unlink()
    with caplog.at_level(logging.WARNING, "millstream"):
        assert len(prepared(config_of(folder), tmp_path).manifest().generations) == 1
    assert f"data.append: nothing is appended to {first.directory}: " in caplog.text


def _other_class(folder: Path) -> None:
    write_rows(folder / "second.csv", [row_of(40), row_of(41) | {"y": "perhaps"}])


def _date_to_time(folder: Path) -> None:
    write_rows(folder / "second.csv", [row_of(40) | {"day": "2026-01-01T12:00:00"}])


def _missing(folder: Path) -> None:
    write_rows(folder / "second.csv", [row_of(40) | {"x": None}])


@pytest.mark.parametrize(
    ("grow", "source", "message"),
    [
        (_other_class, {}, r"the new files hold 1 class \(perhaps\) that .* has no label for; take data\.append=false"),
        (
            _date_to_time,
            {"columns": ["x", "day"]},
            r"with the new files the feature day is timestamp, int64 \[\], never missing, but in .* it is date, int64",
        ),
        (
            _missing,
            {"missing": "keep"},
            r"the feature x is float, float64 \[\], sometimes missing, but in .* it is float, float64 \[\], never",
        ),
        (
            lambda folder: grow(folder, range(10, 12), "second.csv"),
            {"id": "x"},
            r"the new files hold -1\.75, -1\.625 in data\.source\.id, but .* has these already, and an id names one",
        ),
        (
            lambda folder: write_rows(folder / "second.csv", [row_of(40) | {"y": ""}]),
            {},
            "1 of 1 examples cannot be used",
        ),
    ],
    ids=["class", "meaning", "missing", "id", "bad"],
)
def test_new_files_that_do_not_fit_are_refused_by_name_before_anything_is_written(
    tmp_path: Path, folder: Path, grow: Any, source: dict[str, Any], message: str
) -> None:
    config = config_of(folder, source={"columns": ["colour"] if "id" in source else ["x", "colour"], **source})
    first = prepared(config, tmp_path)
    before = contents(first.directory)
    grow(folder)
    with pytest.raises(DataError, match=message):
        prepared(config, tmp_path)
    assert contents(first.directory) == before
    assert [place.parent for place in tmp_path.glob("data/*/any/*")] == [first.directory.parent]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": {"kind": "digits"}}, r"data\.append=true: of data\.source\.kind=digits nothing tells"),
        ({"source": {"kind": "tfds", "name": "mnist"}}, "of data.source.kind=tfds nothing tells"),
        ({"source": {"kind": "array", "read": "mine:read"}}, "of data.source.kind=array nothing tells"),
        (
            {"source": {"kind": "text_folder", "path": "https://example.org/x.zip"}},
            r"of https://example\.org/x\.zip nothing tells .*; take a folder of files on disk",
        ),
        ({"splits": {"kind": "time", "column": "day"}}, "and the shares of data.splits the test split moves on"),
        (
            {"splits": {"kind": "time", "column": "day", "validation_window": "1 day", "test_window": "7 days"}},
            "and data.splits.test_window the test split moves on with the newest example, and shards that stay keep",
        ),
        ({"num_shards": 4}, r"data\.num_shards=4: is an exact number, and data\.append=true adds shards to it"),
    ],
)
def test_what_shards_that_stay_cannot_keep_is_refused_in_the_config(data: dict[str, Any], message: str) -> None:
    tree = config_of(Path("source"), append=False).model_dump(mode="json")
    with pytest.raises(ConfigError, match=message):
        build_config(tree | {"data": tree["data"] | {"append": True} | data})


@pytest.mark.parametrize(
    "bounds",
    [
        {"validation_window": "2 days", "test_window": "3 days"},
        {"train": 0.5, "validation": 0.2, "test": 0.3},
    ],
    ids=["windows", "shares"],
)
def test_a_retraining_is_judged_on_the_newest_window(tmp_path: Path, bounds: dict[str, Any]) -> None:
    folder = tmp_path / "source"
    config = config_of(folder, splits={"kind": "time", "column": "day", **bounds}, append=False)
    grow(folder, range(10), "january.csv")  # one a day, from the first to the tenth
    assert {split: sorted(ids) for split, ids in ids_of(prepared(config, tmp_path)).items()} == {
        "train": [0, 1, 2, 3, 4],
        "validation": [5, 6],
        "test": [7, 8, 9],
    }
    write_rows(folder / "february.csv", [row_of(number) | {"day": f"2026-02-{1 + number:02d}"} for number in range(10)])
    found = {split: sorted(ids) for split, ids in ids_of(prepared(config, tmp_path)).items()}
    if "test_window" in bounds:  # february.csv comes first by its name, so that its rows are the first ten
        assert found == {"train": [0, 1, 2, 3, 4, *range(10, 20)], "validation": [5, 6], "test": [7, 8, 9]}
    else:
        assert found == {"train": list(range(10, 20)), "validation": [0, 1, 2, 3], "test": [4, 5, 6, 7, 8, 9]}
