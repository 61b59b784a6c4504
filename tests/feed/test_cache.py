"""Caches hold the very rows of the shards, stand for nothing else, and survive whatever kills their writer."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError, DataError, WorkerLost
from tasks.feed import cache, reader
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.host_facts import HostFacts
from tasks.files import COMPLETED, damages
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.texts import BytesText
from tests.every_kind import write_every_kind

CONFIG = FeedConfig(
    global_batch_size=16, block=64, window=320, image_size=(4, 4), text=BytesText(length=6), cache="disk"
)


@pytest.fixture
def shards(tmp_path) -> Shards:
    return write_every_kind(tmp_path / "every_kind" / "1.0.0", {"train": 150, "test": 7})


@pytest.fixture
def in_worker(workers, shards, tmp_path):
    """Calls one of `cache_functions` in a process of its own."""

    def call(function: str, **settings):
        arguments = {"directory": str(shards.directory), "config": CONFIG.model_dump(mode="json") | settings}
        folder = Path(__file__).parent
        return workers.call(f"cache_functions:{function}", arguments, log=tmp_path / "log", import_path=[folder])

    return call


@dataclass
class Read:
    feed: Feed
    batches: list[dict[str, np.ndarray]]

    def ids(self) -> list[int]:
        return np.concatenate([batch["id"][batch["mask"]] for batch in self.batches]).tolist()


def read(shards: Shards, num_batches: int = 13, *, manifest: ShardManifest | None = None, **settings) -> Read:
    """Returns the first batches, which go over the end of an epoch of ten."""
    config = FeedConfig.model_validate(CONFIG.model_dump() | settings)
    feed = Feed(shards.directory, manifest or shards.manifest(), "train", config, seed=5, num_replicas=1)
    return Read(feed, list(feed.training(0).take(num_batches).as_numpy_iterator()))


def caches(shards: Shards) -> list[Path]:
    """Returns what of caches is on disk, finished or not."""
    return sorted(path for path in shards.directory.parent.glob("cache/*") if path.is_dir())


def age(shards: Shards) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in caches(shards)[0].iterdir()}


def test_ids_and_values_are_the_same_in_every_cache_and_under_another_limit(shards):
    plain = read(shards, cache="none")
    assert plain.ids()[:150] != sorted(plain.ids()[:150])
    for settings in (
        {"cache": "decoded"},
        {"cache": "memory"},
        {"cache": "disk"},
        {"cache": "disk"},  # written by the one before
        {"cache": "auto", "memory_limit": "1 MB"},
        {"cache": "auto", "memory_limit": "4 GB", "parallel_calls": 3, "prefetch_batches": 1},
    ):
        found = read(shards, **settings)
        assert settings["cache"] in ("auto", found.feed.plan.cache)
        for one, other in zip(plain.batches, found.batches, strict=True):
            assert one.keys() == other.keys()
            for name, value in one.items():
                assert value.dtype == other[name].dtype
                assert np.array_equal(value, other[name]), (settings, name)


def test_a_cache_on_disk_is_plain_arrays_of_the_rows_in_storage_order(shards):
    read(shards, 1)
    [directory] = caches(shards)
    assert list(damages(directory)) == []
    columns = {path.stem: np.load(path) for path in directory.glob("*.npy")}
    assert {name: (column.shape, column.dtype.name) for name, column in columns.items()} == {
        "pixels": ((150, 2, 2, 1), "uint8"),
        "vector": ((150, 3), "float32"),
        "photo": ((150, 4, 4, 3), "uint8"),
        "comment": ((150, 6), "uint8"),
        "colour": ((150, 4), "float32"),
        "weight_g": ((150, 1), "float32"),
        "count": ((150, 1), "float32"),
        "colour_missing": ((150, 1), "float32"),
        "weight_g_missing": ((150, 1), "float32"),
        "label": ((150,), "int64"),
        "id": ((150,), "int64"),
    }
    assert columns["id"].tolist() == list(range(150))


def test_a_cache_is_taken_again_whatever_does_not_change_its_rows(shards):
    read(shards, 1)
    before = age(shards)
    read(shards, 1, global_batch_size=7, window=500, block=128, last_batch="drop", memory_limit="1 GB")
    assert len(caches(shards)) == 1
    assert age(shards) == before


@pytest.mark.parametrize("settings", [{"image_size": (5, 5)}, {"text": {"kind": "bytes", "length": 7}}])
def test_a_cache_of_other_settings_is_not_taken(shards, settings):
    read(shards, 1)
    shown = read(shards, **settings)
    assert len(caches(shards)) == 2
    plain = read(shards, **settings, cache="none")
    for name in ("photo", "comment"):
        assert np.array_equal(shown.batches[0][name], plain.batches[0][name])


def test_a_cache_of_another_split_is_not_taken(shards):
    read(shards, 1)
    feed = evaluation_feed(shards.directory, shards.manifest(), "test", CONFIG, batch_size=4, num_replicas=1)
    ids = np.concatenate([batch["id"][batch["mask"]] for batch in feed.one_pass().as_numpy_iterator()])
    assert ids.tolist() == list(range(150, 157))
    assert len(caches(shards)) == 2


def test_a_cache_is_not_taken_once_the_data_changed(shards, tmp_path):  # tensorflow#18266
    read(shards, 1)
    changed = write_every_kind(tmp_path / "changed" / "1.0.0", {"test": 20, "train": 150})  # other examples in train
    for path in changed.directory.iterdir():
        shutil.copyfile(path, shards.directory / path.name)
    assert sorted(read(shards, 10).ids()) == list(range(20, 170))
    digest = shards.manifest().model_copy(update={"data_digest": "e" * 16})
    read(shards, 1, manifest=digest)
    assert len(caches(shards)) == 3


def test_a_writer_that_is_killed_leaves_nothing_that_is_trusted_and_the_next_one_finishes(shards, in_worker):
    with pytest.raises(WorkerLost):
        in_worker("die_while_writing", text={"kind": "bytes", "length": 5000})
    [half] = caches(shards)
    assert half.name.endswith(".incomplete")
    assert (half / "comment.npy").stat().st_size > 99 * 5000
    found = in_worker("first_batch", text={"kind": "bytes", "length": 5000})
    assert found == {"ids": read(shards, 1, cache="none").ids(), "cache": "disk"}
    [whole] = caches(shards)
    assert list(damages(whole)) == []


@pytest.mark.parametrize("damage", ["shorter", "longer", "missing", "unmarked", "record"])
def test_a_damaged_cache_is_written_anew(shards, damage, caplog):
    expected = read(shards)
    [directory] = caches(shards)
    photo = directory / "photo.npy"
    match damage:
        case "shorter":
            os.truncate(photo, photo.stat().st_size - 1)
        case "longer":
            photo.write_bytes(photo.read_bytes() + b"\0")
        case "missing":
            photo.unlink()
        case "unmarked":
            (directory / COMPLETED).unlink()
        case "record":
            (directory / COMPLETED).write_text("{")
    found = read(shards)
    assert list(damages(directory)) == []
    assert ("the cache is written anew" in caplog.text) == (damage != "unmarked")
    assert all(
        np.array_equal(one["photo"], other["photo"]) for one, other in zip(expected.batches, found.batches, strict=True)
    )


def test_a_cache_that_is_there_needs_no_room_again(shards, monkeypatch):
    settings = {"cache": "auto", "image_size": (100, 100), "memory_limit": "8 MB"}

    def free(size):
        host = HostFacts(memory_bytes=10**10, num_cores=2, medium="local", free_disk_bytes=size)
        monkeypatch.setattr(reader, "host_facts", lambda _: host)

    free(10_000_000)
    assert read(shards, 1, **settings).feed.plan.cache == "disk"
    free(5_000_000)
    before = age(shards)
    assert read(shards, 1, **settings).feed.plan.cache == "disk"
    assert age(shards) == before
    shutil.rmtree(caches(shards)[0])
    assert read(shards, 1, **settings).feed.plan.cache == "memory"


def test_the_ids_of_a_step_are_found_where_only_the_cache_fits_into_the_memory(shards):
    manifest = shards.manifest()
    train = manifest.splits["train"]
    [shard] = train.shards
    large = train.model_copy(update={"shards": (shard.model_copy(update={"record_bytes": 10**8}),)})
    manifest = manifest.model_copy(update={"splits": {"train": large}})
    settings = {"manifest": manifest, "memory_limit": "200 MB"}
    with pytest.raises(ConfigError, match=r"over feed.memory_limit=200 MB"):
        read(shards, **settings, cache="none")
    found = read(shards, 1, **settings, cache="decoded")
    assert found.feed.ids(0).tolist() == found.ids()


def test_a_target_of_any_name_has_a_file_in_a_cache(tmp_path):
    rows = cache.rows_on_disk(tmp_path / "cache" / "any", [{"a/b": tf.range(3)}], {"a/b": ((), "int32")}, 3)
    assert rows["a/b"].tolist() == [0, 1, 2]


def test_two_processes_share_a_cache(shards, in_worker):
    one, other = in_worker("first_batch_in_two_processes")["answers"]
    assert one == other == {"ids": read(shards, 1, cache="none").ids(), "cache": "disk"}
    [directory] = caches(shards)
    assert list(damages(directory)) == []


def test_a_full_disk_is_said_and_the_shards_are_read_instead(shards, in_worker, tmp_path):
    found = in_worker("first_batch_on_a_full_disk")
    assert found == {"ids": read(shards, 1, cache="none").ids(), "cache": "none"}
    assert "cannot be used as a cache (File too large); goes on without" in (tmp_path / "log").read_text()
    assert caches(shards) == []


@pytest.mark.parametrize("cache", ["decoded", "disk"])
def test_shards_with_fewer_examples_than_their_manifest_says_are_refused(shards, cache):
    manifest = shards.manifest()
    split = manifest.splits["train"]
    more = split.model_copy(update={"num_examples": 151})
    with pytest.raises(DataError, match=r"hold 150 examples, where their manifest says 151; mend them"):
        read(shards, 1, manifest=manifest.model_copy(update={"splits": {"train": more}}), cache=cache)
    assert caches(shards) == []
