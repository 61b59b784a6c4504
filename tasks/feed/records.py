"""Records: a few serialized examples of a split, as they lie in the shards."""

from pathlib import Path

import tensorflow as tf

from tasks.prepare.manifest import ShardManifest

COMPRESSION_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""TensorFlow's names of what a manifest calls compression."""


def first_records(directory: Path, manifest: ShardManifest, split: str, *, count: int) -> tf.Tensor:
    """Returns [n] string: the first `count` tf.Examples of a split in storage order, all of them if there are fewer."""
    files = [str(directory / shard.file) for shard in manifest.splits[split].shards]
    records = tf.data.TFRecordDataset(files, COMPRESSION_TYPES[manifest.compression])
    return next(iter(records.take(count).batch(count)))
