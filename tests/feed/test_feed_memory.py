"""The memory of a feed: what is planned holds, on a set that is larger than it may take."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tasks.prepare.manifest import MANIFEST, Feature, Shard, SplitManifest
from tests.every_kind import manifest_of

MB = 10**6
SLACK_BYTES = 48 * MB  # of threads, graphs and what malloc keeps of them
ROW_BYTES, SIZES = 20_000, {"train": 10_000, "test": 200}

FEATURES = {
    "x": Feature.of("tensor", "uint8", (100, ROW_BYTES // 100, 1)),
    "label": Feature.of("label", "int64"),
    "id": Feature.of("id", "int64"),
}


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Shards of 200 MB."""
    directory = tmp_path_factory.mktemp("large") / "1.0.0"
    directory.mkdir()
    splits = {split: write(directory / split, count) for split, count in SIZES.items()}
    manifest_of(splits, features=FEATURES, inputs=("x",), statistics={}).write(directory / MANIFEST)
    return directory


@pytest.fixture
def measured(large, workers, tmp_path):
    """Measures in a process of its own how much a feed with these settings makes it grow."""

    def measure(**settings):
        arguments, folder = {"directory": str(large), "config": settings}, str(Path(__file__).parent)
        return workers.call("cache_functions:memory_growth", arguments, log=tmp_path / "log", import_path=[folder])

    return measure


def write(file: Path, count: int) -> SplitManifest:
    rng, offsets, offset = np.random.default_rng(0), [], 0
    with tf.io.TFRecordWriter(str(file)) as writer:
        for id in range(count):
            features = {
                "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[rng.bytes(ROW_BYTES)])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[id % 2])),
                "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[id])),
            }
            record = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
            offsets += [offset] if id % 64 == 0 else []
            offset += len(record) + 16
            writer.write(record)
    shard = Shard(
        file=file.name,
        num_examples=count,
        size_bytes=offset,
        record_bytes=offset,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        offsets=tuple(offsets),
    )
    return SplitManifest(num_examples=count, class_counts=(count // 2, count // 2), shards=(shard,))


@pytest.mark.prove
@pytest.mark.parametrize(
    ("cache", "limit_mb", "taken"),
    [("auto", 120, "none"), ("disk", 60, "disk"), ("auto", 450, "decoded"), ("memory", 450, "memory")],
)
def test_a_feed_stays_below_its_limit_and_what_it_planned(measured, cache, limit_mb, taken):
    found = measured(cache=cache, memory_limit=f"{limit_mb} MB", window=1280, global_batch_size=64)
    assert found["cache"] == taken
    assert found["planned"] <= limit_mb * MB
    assert found["growth"] <= found["planned"] + SLACK_BYTES, {name: found[name] for name in ("growth", "planned")}
    assert found["growth"] <= limit_mb * MB


@pytest.mark.prove
def test_a_feed_that_changes_images_stays_below_its_limit_too(measured):
    found = measured(
        cache="none", memory_limit="300 MB", window=1280, global_batch_size=256, augment=[{"kind": "mixup"}]
    )
    assert found["planned"] <= 300 * MB
    assert found["growth"] <= found["planned"] + SLACK_BYTES, {name: found[name] for name in ("growth", "planned")}
    assert found["growth"] <= 300 * MB
