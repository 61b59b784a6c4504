"""Records: serialized examples of a split, as they lie in the shards, and what is stored in them."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from tasks.feed.parse import parse_batch
from tasks.prepare.manifest import ShardManifest
from tasks.workers.child import progress, stop_if, stop_requested

COMPRESSION_TYPES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""TensorFlow's names of what a manifest calls compression."""
NUM_AT_ONCE = 256  # of large encoded images some 50 MB


def first_records(directory: Path, manifest: ShardManifest, split: str, *, count: int) -> tf.Tensor:
    """Returns [n] string: the first `count` tf.Examples of a split in storage order, all of them if there are fewer."""
    return next(iter(_records(directory, manifest, split).take(count).batch(count)))


def record_batches(directory: Path, manifest: ShardManifest, split: str) -> Iterator[tf.Tensor]:
    """Yields [b] string: all tf.Examples of a split in storage order."""
    yield from _records(directory, manifest, split).batch(NUM_AT_ONCE).prefetch(2)


def stored_batches(
    directory: Path, manifest: ShardManifest, split: str, names: Collection[str]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields {feature: [b, *stored_shape]} of all examples of a split in storage order; strings as bytes objects.

    Raises Stopped if a signal comes meanwhile.
    """
    batches = _records(directory, manifest, split).batch(NUM_AT_ONCE)
    parsed = batches.map(lambda some: parse_batch(some, manifest.features, names)).prefetch(2)
    for number, batch in enumerate(parsed.as_numpy_iterator()):
        stop_if(stop_requested())
        progress("read", split=split, batch=number)
        yield batch


def stored_rows(
    directory: Path, manifest: ShardManifest, split: str, names: Collection[str], rows: Sequence[int]
) -> list[dict[str, Any]]:
    """Returns {feature: its value} of the examples at these places of a split, in the order in which they are asked."""
    wanted, found, start = set(rows), {}, 0
    for batch in stored_batches(directory, manifest, split, names) if wanted else ():
        size = len(next(iter(batch.values())))
        for row in wanted.intersection(range(start, start + size)):
            found[row] = {name: values[row - start] for name, values in batch.items()}
        start += size
    return [found[row] for row in rows]


def _records(directory: Path, manifest: ShardManifest, split: str) -> tf.data.Dataset:
    files = [str(directory / shard.file) for shard in manifest.splits[split].shards]
    return tf.data.TFRecordDataset(files, COMPRESSION_TYPES[manifest.compression])
