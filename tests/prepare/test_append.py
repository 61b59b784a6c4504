"""Appending: new files get shards of their own, and all that was there stays to the byte, the split and the id."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.config import FeedConfig, build_config
from tasks.feed.feed import Feed, evaluation_feed
from tasks.prepare.base import Base
from tasks.prepare.manifest import QUARANTINE, Shards
from tasks.prepare.scan import KEYS
from tests.any_source import picture, prepared, read_split
from tests.growing import RULES, SHARES, check_grown, check_whole, config_of, contents, grow, ids_of, row_of, write_rows


@settings(max_examples=8, deadline=None)
@given(
    rule=st.sampled_from(list(RULES)),
    seed=st.integers(0, 2**31 - 1),
    first=st.integers(30, 45),
    # Files that come later: their rows, and whether by name they come before those that are there.
    later=st.lists(
        st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=3), max_size=2, min_size=1
    ),
)
def test_files_in_batches_are_each_written_once_and_what_was_there_stays(
    tmp_path_factory: pytest.TempPathFactory,
    rule: str,
    seed: int,
    first: int,
    later: list[list[tuple[int, bool]]],
) -> None:
    folder, workspace, other = (tmp_path_factory.mktemp(name) for name in ("source", "workspace", "other"))
    arrivals = [[(first - 10, False), (10, False)], *later]
    rows: list[dict[str, Any]] = []
    keys: list[str] = []
    groups: dict[str, str] = {}
    before: Shards | None = None
    for number, arrival in enumerate(arrivals):
        names = [f"{'a' if early else 'b'}{number}/{place}-{place % 2}.csv" for place, (_, early) in enumerate(arrival)]
        for name, (num_rows, _) in sorted(zip(names, arrival, strict=True)):
            new = [row_of(len(rows) + place) for place in range(num_rows)]
            write_rows(folder / name, new)
            rows += new
            keys += [f"{name}:{place + 1}" for place in range(num_rows)]
        config = config_of(folder, rule, seed=seed)
        shards = prepared(config, workspace)
        again = prepared(config, other)  # the same files in the same order, elsewhere
        assert shards.data_digest == again.data_digest == shards.directory.parents[1].name
        assert contents(shards.directory) == contents(again.directory)
        assert prepared(config, workspace).reused
        check_whole(shards, rows, keys)
        if before is not None:
            check_grown(before, shards)
        if rule == "group":
            of_group = {rows[id]["who"]: split for split, ids in ids_of(shards).items() for id in ids}
            assert groups.items() <= of_group.items()
            assert all(of_group[rows[id]["who"]] == split for split, ids in ids_of(shards).items() for id in ids)
            groups = of_group
        before = shards
    assert len(shards.manifest().generations) == len(arrivals)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source of 40 rows in one file."""
    grow(tmp_path / "source", range(40), "first.csv")
    return tmp_path / "source"


FOLDERS = {
    "image_folder": (picture, "image"),
    "text_folder": (lambda number: f"Text {number}".encode(), "text"),
}


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("rule", ["fraction", "official", "group"])
def test_new_files_of_class_folders_are_read_alone_and_get_the_next_ids(tmp_path: Path, kind: str, rule: str) -> None:
    content, name = FOLDERS[kind]
    folder, top = tmp_path / "source", ("train/", "validation/", "test/")
    paths: dict[str, int] = {}

    def put(numbers: range) -> list[str]:
        new = {}
        for number in numbers:
            in_split = top[number % 4 % 3] if rule == "official" else ""
            new[f"{in_split}{('cat', 'dog')[number % 2]}/{99 - number}-p{number % 5}"] = number
        for path, number in new.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content(number))
        paths.update(new)
        return sorted(new, key=lambda path: (path.split("/")[:-1], int(path.split("/")[-1].split("-")[0])))

    splits = {"group": {"column": "path", "pattern": "-(p[0-9])", **SHARES}, "official": {}, "fraction": SHARES}[rule]
    source = {"kind": kind, "path": str(folder)}
    data = {"source": source, "splits": {"kind": rule, **splits}, "append": True, "num_workers": 1}
    config = build_config({"name": "any", "data": data})
    keys = put(range(40))
    first = prepared(config, tmp_path)
    keys += put(range(40, 52))
    (folder / "read me").write_text("no class")
    second = prepared(config, tmp_path)
    check_grown(first, second)
    table = pq.read_table(second.directory / KEYS).to_pydict()
    assert (table["id"], table["key"]) == (list(range(52)), keys)
    manifest = second.manifest()
    for split in manifest.splits:
        for each in read_split(second.directory, manifest, split):
            path = keys[each["id"]]
            assert each[name] == content(paths[path])
            assert manifest.label_map[each["label"]] == path.split("/")[-2]
            assert rule != "official" or path.startswith(split)
    (folder / "more to read").write_text("no class either")
    third = prepared(config, tmp_path)
    check_grown(second, third)
    assert third.manifest().generations[-1].num_rows == 0
    assert third.num_examples == second.num_examples
    assert "2 files in no class folder: left out (more to read, read me)" in third.manifest().notes
    put(range(52, 56))
    check_grown(third, prepared(config, tmp_path))  # and not the second again, though it has as many examples


def test_bad_examples_of_each_arrival_are_listed_and_ids_go_on_behind_them(tmp_path: Path, folder: Path) -> None:
    config = config_of(folder, max_bad_fraction=0.5)
    write_rows(
        folder / "first.csv", [row_of(number) | ({"y": ""} if number in (7, 39) else {}) for number in range(40)]
    )
    prepared(config, tmp_path)
    write_rows(
        folder / "second.csv", [row_of(number) | ({"y": ""} if number == 40 else {}) for number in range(40, 50)]
    )
    shards = prepared(config, tmp_path)
    assert sorted(id for ids in ids_of(shards).values() for id in ids) == sorted({*range(50)} - {7, 39, 40})
    bad = [json.loads(line) for line in (shards.directory / QUARANTINE).read_text().splitlines()]
    assert [(each["path"], each["row"]) for each in bad] == [("first.csv", 8), ("first.csv", 40), ("second.csv", 1)]
    assert shards.num_bad == 3


def test_new_files_whose_columns_stand_in_another_order_change_none(tmp_path: Path, folder: Path) -> None:
    config = config_of(folder, source={"columns": None})
    first = prepared(config, tmp_path)
    write_rows(folder / "before.csv", [dict(reversed(row_of(number).items())) for number in range(40, 45)])
    second = prepared(config, tmp_path)
    check_grown(first, second)
    assert second.manifest().inputs == first.manifest().inputs == ("x", "colour", "who", "day")
    info = json.loads((second.directory / "dataset_info.json").read_text())
    assert {split["name"]: list(map(int, split["shardLengths"])) for split in info["splits"]} == {
        name: [shard.num_examples for shard in split.shards] for name, split in second.manifest().splits.items()
    }
    assert {shard.file for split in second.manifest().splits.values() for shard in split.shards} == {
        file.name for file in second.directory.glob("any-*.tfrecord-*")
    }


def test_a_feed_shows_old_and_new_examples_once_an_epoch_and_the_test_split_in_order(
    tmp_path: Path, folder: Path
) -> None:
    config, settings = config_of(folder), FeedConfig(global_batch_size=50, block=64, window=320)
    grow(folder, range(600), "first.csv")
    prepared(config, tmp_path)
    grow(folder, range(600, 800), "second.csv")
    shards = prepared(config, tmp_path)
    ids, manifest = ids_of(shards), shards.manifest()
    assert {split: len(found) for split, found in ids.items()} == {"train": 480, "validation": 160, "test": 160}
    feed = Feed(shards.directory, manifest, "train", settings, seed=1, num_replicas=1)
    elements = feed.training(0).take(2 * feed.steps_per_epoch).as_numpy_iterator()
    epochs = np.concatenate([each["id"][each["mask"]] for each in elements]).reshape(2, -1)
    for number, epoch in enumerate(epochs):
        assert epoch.tolist() == [ids["train"][row] for row in feed.order(number)]
        assert sorted(epoch) == sorted(ids["train"])
    test = evaluation_feed(shards.directory, manifest, "test", FeedConfig(), batch_size=4, num_replicas=1)
    shown = [each["id"][each["mask"]] for each in test.one_pass().as_numpy_iterator()]
    assert np.concatenate(shown).tolist() == ids["test"]


def test_words_are_counted_over_the_texts_of_all_generations(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    data = {
        "source": {"kind": "text_folder", "path": str(folder)},
        "splits": {"kind": "fraction", **SHARES},
        "append": True,
        "text": {"split": "whitespace", "max_vocabulary": 2},
    }
    config = build_config({"name": "any", "data": data})
    for first in (0, 30):
        for number in range(first, first + 30):
            path = folder / "ab"[number % 2] / f"{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("all " + ("old rare" if number < 30 else "new new") + f" {number}")
        shards = prepared(config, tmp_path)
    num_old, num_new = (generation.num_examples["train"] for generation in shards.manifest().generations)
    assert (num_old, num_new) == (18, 18)
    statistics = shards.manifest().statistics["text"]
    # In the first generation `all` and `old` were the most frequent: what it left out counts with the others now.
    assert statistics.vocabulary == (("all", 36), ("new", 36))
    assert (statistics.num_left_out, statistics.num_tokens) == (2 + 36, 36 + 36 + 18 + 18 + 36)


def test_new_examples_join_their_group_and_a_new_group_goes_where_most_is_lacking(tmp_path: Path, folder: Path) -> None:
    config = config_of(folder, "group")
    first = prepared(config, tmp_path)
    groups = Base.read(first.directory).held().groups
    assert groups == {"p0": 1, "p1": 2, "p2": 1, "p3": 0, "p4": 0, "p5": 0, "p6": 0}
    assert first.num_examples == {"train": 23, "validation": 11, "test": 6}
    # One more of each group; of 48 examples test then lacks 9.6 - 7, train 28.8 - 27, and validation has too many.
    write_rows(folder / "second.csv", [row_of(5) | {"who": "new"}, *(row_of(number) for number in range(40, 47))])
    shards = prepared(config, tmp_path)
    assert Base.read(shards.directory).held().groups == {**groups, "new": 2}
    assert shards.num_examples == {"train": 27, "validation": 13, "test": 8}


def test_new_examples_are_split_among_themselves_and_of_a_few_a_split_may_get_none(
    tmp_path: Path, folder: Path
) -> None:
    config = config_of(folder)
    assert prepared(config, tmp_path).num_examples == {"train": 24, "validation": 8, "test": 8}
    grow(folder, range(40, 60), "second.csv")
    assert prepared(config, tmp_path).num_examples == {"train": 36, "validation": 12, "test": 12}
    grow(folder, range(60, 61), "third.csv")
    shards = prepared(config, tmp_path)
    assert shards.num_examples == {"train": 37, "validation": 12, "test": 12}
    assert "of the 1 new examples none goes to validation, test" in shards.manifest().notes
