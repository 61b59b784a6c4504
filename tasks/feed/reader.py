"""Reader: the examples of a split in any order, from its shards or from a cache that is filled once."""

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.feed import cache
from tasks.feed.augment import Augment
from tasks.feed.host_facts import host_facts
from tasks.feed.parse import parse_batch
from tasks.feed.plan import CACHES, FeedPlan, fill_batch_size, plan_feed
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import COMPRESSION_TYPES
from tasks.feed.signature import Signature, num_bytes, stored_shape
from tasks.files import digest_json
from tasks.prepare.manifest import ShardManifest

READ_BUFFER_BYTES = 256 * 1024
# Settings that do not change what an example is decoded to; a new one is taken to do so until it stands here.
_AFTER_DECODING = frozenset(
    {
        "global_batch_size",
        "block",
        "window",
        "sampling",
        "last_batch",
        "shard_policy",
        "service",
        "cache",
        "memory_limit",
        "prefetch_batches",
        "parallel_calls",
        "augment",
        "augment_input",
    }
)

logger = logging.getLogger("millstream")

Examples: TypeAlias = tf.Tensor
"""What stands for examples until they are decoded, [n]: their records (string), or their rows in the split (int64)."""
Features = dict[str, tf.Tensor]
"""By name: the inputs of `Preprocess`, label and id, [n, ...]."""


class Reader:
    """Reads a split by blocks, and decodes what it read; where a cache is planned, from that."""

    def __init__(
        self,
        directory: Path,
        manifest: ShardManifest,
        split: str,
        config: FeedConfig,
        *,
        preprocess: Preprocess,
        augment: Augment | None,
        evaluation: bool,
    ) -> None:
        """Plans; raises ConfigError if the config does not fit the split. Reads nothing yet."""
        self._directory, self._manifest, self._split = directory, manifest, split
        self._config, self._augment, self._evaluation = config, augment, evaluation
        self._shards = manifest.splits[split].shards
        self._num_examples = manifest.splits[split].num_examples
        self._example_bytes = sum(shard.record_bytes for shard in self._shards) // self._num_examples
        self._preprocess = preprocess
        self._host = host_facts(directory)
        self.plan = self._make_plan()
        """How the work is done on this host."""
        self._records: np.ndarray | None = None
        self._rows: cache.Rows = {}
        self._is_filled = False

    def unfilled(self) -> "Reader":
        """Returns a reader of the same examples from the shards, for a few of which no cache is worth being filled."""
        reader = copy.copy(self)
        reader._records, reader._rows, reader._is_filled = None, {}, True
        return reader

    def fill(self) -> None:
        """Fills the planned cache, once; plans anew without one, if a disk refuses it."""
        if self._is_filled:
            return
        columns = self._columns()
        if self.plan.cache == "memory":
            self._records = cache.records_in_memory(self._in_order(self._example_bytes), self._num_examples)
        elif self.plan.cache != "none":
            decoded = map_parallel(
                self._in_order(num_bytes(columns.values())), self._decode_records, self.plan.fill_calls
            ).prefetch(1)
            if self.plan.cache == "decoded":
                self._rows = cache.rows_in_memory(decoded, columns, self._num_examples)
            else:
                place = self._cache_directory(columns)
                self._rows = cache.rows_on_disk(place, decoded, columns, self._num_examples) or {}
                if not self._rows:
                    self._config = self._config.model_copy(update={"cache": "none"})
                    self.plan = self._make_plan()
        self._is_filled = True

    def columns(self, after: tf.Tensor) -> Features:
        """Returns the decoded split of a filled cache, in a graph, once `after` is there; empty if it keeps none."""
        return cache.columns(self._rows, after)

    def read(self, blocks: tf.Tensor, size: int | tf.Tensor) -> tf.data.Dataset:
        """Returns the Examples of blocks, [n, 5] int64, in their order, `size` at once but for the last ones."""
        if self._rows or self._records is not None:
            return _read_rows(blocks, size)
        files = tf.constant([str(self._directory / shard.file) for shard in self._shards])

        def read_block(block: tf.Tensor) -> tf.data.Dataset:
            # Not tf.unstack: with it TensorFlow 2.21 crashes as the iterator of several devices is made.
            file, offset, skip, count = (block[column] for column in range(4))
            records = tf.raw_ops.TFRecordDatasetV2(
                filenames=[files[file]],
                compression_type=COMPRESSION_TYPES[self._manifest.compression],
                buffer_size=READ_BUFFER_BYTES,
                byte_offsets=[offset],
            )
            dataset = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
            return dataset.skip(skip).take(count).batch(self._config.block)

        return tf.data.Dataset.from_tensor_slices(blocks).flat_map(read_block).rebatch(size)

    def decode(self, examples: Examples, columns: Features, epoch: tf.Tensor | None) -> Features:
        """Returns the features of examples; `columns`: those of this reader. `epoch`: in a training, [] int64.

        Images that are changed at random before they are decoded depend on it, and on nothing else in here.
        """
        if columns:
            return cache.pick(columns, examples)
        return self._decode_records(self._find_records(examples), epoch)

    def labels(self, examples: Examples, columns: Features) -> tf.Tensor:
        """Returns [n] int64: the labels of examples."""
        target = self._manifest.target
        if columns:
            return tf.gather(columns[target], examples)
        return parse_batch(self._find_records(examples), self._manifest.features, [target])[target]

    def _make_plan(self) -> FeedPlan:
        # What a cache takes that is there already, whole or not, it need not find room for.
        place = self._cache_directory(self._columns())
        taken = sum(file.stat().st_size for file in place.parent.glob(f"{place.name}*/*"))
        host = replace(self._host, free_disk_bytes=self._host.free_disk_bytes + taken)
        plan = plan_feed(self._manifest, self._split, self._config, host, evaluation=self._evaluation)
        logger.info("%s: %s", self._split, plan.line())
        return plan

    def _columns(self) -> Signature:
        keys = {name: self._manifest.features[name] for name in (self._manifest.target, self._manifest.id)}
        return self._preprocess.inputs | {name: (stored_shape(key), key.dtype) for name, key in keys.items()}

    def _cache_directory(self, columns: Signature) -> Path:
        """Returns where the decoded split lies on disk: its name stands for all that its content follows from."""
        content = {
            "data": self._manifest.data_digest,
            "shards": [shard.sha256 for shard in self._shards],
            "split": self._split,
            "settings": self._config.model_dump(mode="json", exclude=set(_AFTER_DECODING)),
            "columns": columns,
            "format": cache.FORMAT_VERSION,
            "tensorflow": tf.__version__,  # its decoders
        }
        return self._directory.parent / CACHES / digest_json(content)[:16]

    def _in_order(self, example_bytes: int) -> tf.data.Dataset:
        """Returns the records of the split in storage order, in batches that are small, decoded to that size too."""
        files = [str(self._directory / shard.file) for shard in self._shards]
        records = tf.data.TFRecordDataset(
            files, COMPRESSION_TYPES[self._manifest.compression], buffer_size=READ_BUFFER_BYTES
        )
        return records.batch(fill_batch_size(max(example_bytes, self._example_bytes)))

    def _find_records(self, examples: Examples) -> tf.Tensor:
        return examples if self._records is None else cache.pick_records(self._records, examples)

    def _decode_records(self, records: tf.Tensor, epoch: tf.Tensor | None = None) -> Features:
        keys = (self._manifest.target, self._manifest.id)
        parsed = parse_batch(records, self._manifest.features, (*self._preprocess.names, *keys))
        made: Mapping[str, tf.Tensor] = {}
        if self._augment is not None and epoch is not None:
            made = self._augment.windows(parsed, epoch)
        return self._preprocess(parsed, made) | {name: parsed[name] for name in keys}


def map_parallel(dataset: tf.data.Dataset, function: Callable[..., Any], num_calls: int) -> tf.data.Dataset:
    """Returns the dataset mapped, in its order, by so many calls at once."""
    if num_calls == 1:
        return dataset.map(function)
    return dataset.map(function, num_parallel_calls=num_calls, deterministic=True)


def _read_rows(blocks: tf.Tensor, size: int | tf.Tensor) -> tf.data.Dataset:
    count, first = blocks[:, 3], blocks[:, 4]
    rows = tf.ragged.range(first, first + count).values
    pieces = tf.data.Dataset.range(-(-tf.size(rows, tf.int64) // tf.cast(size, tf.int64)))
    return pieces.map(lambda piece: rows[piece * size : (piece + 1) * size])
