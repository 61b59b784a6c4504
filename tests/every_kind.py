"""Shards with a feature of every kind, written by hand: what a reader of shards may meet."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.prepare.manifest import (
    MANIFEST,
    OFFSET_STRIDE,
    Feature,
    FeatureStatistics,
    Shard,
    ShardManifest,
    Shards,
    SplitManifest,
)

FEATURES = {
    "pixels": Feature(kind="tensor", shape=(2, 2, 1), dtype="uint8", storage="raw_bytes"),
    "vector": Feature(kind="tensor", shape=(3,), dtype="float32", storage="float_list"),
    "photo": Feature(kind="image", shape=(None, None, 3), dtype="string", storage="bytes_list"),
    "comment": Feature(kind="text", shape=(), dtype="string", storage="bytes_list"),
    "colour": Feature(kind="category", shape=(), dtype="string", storage="bytes_list", missing="colour_missing"),
    "weight (g)": Feature(kind="number", shape=(), dtype="float64", storage="raw_bytes", missing="weight (g)_missing"),
    "count": Feature(kind="number", shape=(), dtype="int64", storage="int64_list"),
    "colour_missing": Feature(kind="missing", shape=(), dtype="int64", storage="int64_list"),
    "weight (g)_missing": Feature(kind="missing", shape=(), dtype="int64", storage="int64_list"),
    "label": Feature(kind="label", shape=(), dtype="int64", storage="int64_list"),
    "id": Feature(kind="id", shape=(), dtype="int64", storage="int64_list"),
}
INPUTS = ("pixels", "vector", "photo", "comment", "colour", "weight (g)", "count")
LABEL_MAP = ("no", "yes", "später")
# The mean and the deviation are such that normalised values are exact in float32.
STATISTICS = {
    "colour": FeatureStatistics(num_missing=1, vocabulary=(("red", 5), ("grün", 4), ("blue", 1))),
    "weight (g)": FeatureStatistics(num_missing=1, mean=1.5, std=0.5, min=-1, max=3),
    "count": FeatureStatistics(mean=4.0, std=2.0, min=0, max=9),
    "comment": FeatureStatistics(
        vocabulary=(("den", 4), ("größer", 3), ("platz", 3), ("short", 2)), num_left_out=4, num_tokens=28
    ),
}
TEXT = {"standardise": "lower_and_strip_punctuation", "split": "whitespace", "max_vocabulary": 4}
"""How the vocabulary was counted."""


def manifest_of(splits: Mapping[str, SplitManifest], **changes: Any) -> ShardManifest:
    """Returns the manifest of such shards."""
    return ShardManifest(
        name="every_kind",
        version="1.0.0",
        data_digest="d" * 16,
        source_digest="s" * 16,
        seed=0,
        offset_stride=OFFSET_STRIDE,
        compression="none",
        inputs=INPUTS,
        target="label",
        id="id",
        features=FEATURES,
        label_map=LABEL_MAP,
        splits=dict(splits),
        statistics=STATISTICS,
        config={"text": TEXT},
        num_bad=0,
        notes=(),
        code_version="0",
    ).model_copy(update=changes)


def make_example(id: int) -> dict[str, Any]:
    """Returns the features of an example as they are stored; its label is a function of its count."""
    rng = np.random.default_rng(id)
    colour = ("red", "grün", "blue", "never seen", "")[id % 5]
    size = ((4, 6), (9, 5), (5, 5))[id % 3]
    photo = rng.integers(0, 256, (*size, 3), np.uint8)
    return {
        "pixels": rng.integers(0, 256, (2, 2, 1), np.uint8),
        "vector": rng.integers(-8, 8, 3).astype(np.float32) / 4,
        "photo": (tf.io.encode_png if id % 2 else tf.io.encode_jpeg)(photo).numpy(),
        "comment": ("", "short", "größer als der Platz, den sie hat")[id % 3].encode(),
        "colour": colour.encode(),
        "weight (g)": np.float64(0 if id % 4 == 3 else rng.integers(-4, 8) / 4),
        "count": id % 10,
        "colour_missing": int(not colour),
        "weight (g)_missing": int(id % 4 == 3),
        "label": id % 10 % 3,
        "id": id,
    }


def write_every_kind(directory: Path, num_examples: Mapping[str, int]) -> Shards:
    """Returns the shards of the splits, one file each, written to `directory`; the ids count on from split to split."""
    directory.mkdir(parents=True, exist_ok=True)
    splits, first = {}, 0
    for split, count in num_examples.items():
        examples = [make_example(id) for id in range(first, first + count)]
        first += count
        splits[split] = write_examples(directory / f"every_kind-{split}.tfrecord-00000-of-00001", examples)
    manifest = manifest_of(splits)
    manifest.write(directory / MANIFEST)
    return Shards(
        directory=directory,
        data_digest=manifest.data_digest,
        num_shards=len(splits),
        num_examples=dict(num_examples),
        reused=False,
        num_bad=0,
    )


def serialize(example: Mapping[str, Any]) -> bytes:
    """Returns the tf.Example."""
    stored = {name: _feature(FEATURES[name], value) for name, value in example.items()}
    return tf.train.Example(features=tf.train.Features(feature=stored)).SerializeToString()


def _feature(feature: Feature, value: Any) -> tf.train.Feature:
    match feature.storage:
        case "raw_bytes":
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[np.asarray(value).tobytes()]))
        case "bytes_list":
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        case "int64_list":
            return tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(value)))
        case "float_list":
            return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))


def write_examples(file: Path, examples: list[dict[str, Any]]) -> SplitManifest:
    """Returns the split of these examples, written to one file."""
    records = [serialize(example) for example in examples]
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)
    starts = np.cumsum([0, *(len(record) + 16 for record in records)])
    data = file.read_bytes()
    shard = Shard(
        file=file.name,
        num_examples=len(records),
        size_bytes=len(data),
        record_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        offsets=tuple(starts[:-1:OFFSET_STRIDE].tolist()),
    )
    counts = np.bincount([example["label"] for example in examples], minlength=len(LABEL_MAP))
    return SplitManifest(num_examples=len(records), class_counts=tuple(counts.tolist()), shards=(shard,))
