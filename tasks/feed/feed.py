"""Feed: the shards of a split as tf.data, in an order that is a function of seed, epoch and manifest."""

import copy
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed import cache
from tasks.feed.blocks import cut_blocks, shuffle_blocks
from tasks.feed.host_facts import host_facts
from tasks.feed.parse import parse_batch
from tasks.feed.plan import CACHES, FeedPlan, plan_feed
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
        "last_batch",
        "cache",
        "memory_limit",
        "prefetch_batches",
        "parallel_calls",
    }
)
MIN_BLOCKS_PER_WINDOW = 5  # with fewer, a window holds many neighbours and hardly mixes them

logger = logging.getLogger("millstream")

_Epoch = tuple[int, int, int, np.ndarray]  # its number, the first window, examples to drop in that, blocks [n, 5]
_Read = Callable[[tf.Tensor], tf.data.Dataset]  # of a block [5]
_Decode = Callable[[tf.Tensor], dict[str, tf.Tensor]]  # of a batch of what was read


class Feed:
    """Global batches of one split, padded to the replicas and cut into one slice for each.

    An element is a dict of one replica's slice: the inputs of `Preprocess`, label and id by name ([b, ...]), `mask`
    ([b] bool, False for padding), `first_row` ([] int64, place of its first row in the global batch) and `num_valid`
    ([] int64, examples in the whole global batch). Replica r takes every element with number r modulo `num_replicas`.
    """

    def __init__(
        self,
        directory: Path,
        manifest: ShardManifest,
        split: str,
        config: FeedConfig,
        *,
        seed: int,
        num_replicas: int,
        evaluation: bool = False,
    ) -> None:
        """Plans the feed; raises ConfigError if the config does not fit the split. Reads nothing yet."""
        self._directory, self._manifest, self._split = directory, manifest, manifest.splits[split]
        self._split_name, self._evaluation = split, evaluation
        self._config, self._seed, self._num_replicas = config, seed, num_replicas
        self._blocks = cut_blocks(manifest, split, block=config.block)
        self.num_examples = self._split.num_examples
        self.global_batch_size = config.global_batch_size
        rounded = math.floor if config.last_batch == "drop" else math.ceil
        self.steps_per_epoch = rounded(self.num_examples / self.global_batch_size)
        self._check(split)
        self._preprocess = Preprocess(manifest, config)
        self._names = (*self._preprocess.names, manifest.target, manifest.id)
        self._host = host_facts(directory)
        self.plan = self._make_plan()
        """How it does its work on this host."""
        self._example_bytes = sum(shard.record_bytes for shard in self._split.shards) // self.num_examples
        self._kept: np.ndarray | cache.Rows | None = None
        """What the cache keeps: all records [num_examples], or decoded rows, empty without a cache; None: not yet."""

    def training(self, start_step: int) -> tf.data.Dataset:
        """Returns an endless dataset that begins with the batch of `start_step`, epoch after epoch."""
        first_epoch, first_batch = divmod(start_step, self.steps_per_epoch)

        def epoch(number: int) -> _Epoch:
            return self._epoch(number, first_batch if number == first_epoch else 0)

        return self._batches(epoch, range(first_epoch, 2**31), shuffle=True)

    def one_pass(self) -> tf.data.Dataset:
        """Returns every example once, in storage order; the last batch is padded."""

        return self._batches(lambda _: (0, 0, 0, self._blocks.table()), range(1), shuffle=False)

    def order(self, epoch: int) -> np.ndarray:
        """Returns [num_examples] int64: rows of the split in the order in which an epoch shows them."""
        rows = shuffle_blocks(self._blocks, seed=self._seed, epoch=epoch).rows()
        windows = np.split(rows, range(self._config.window, len(rows), self._config.window))
        return np.concatenate(
            [window[self._permutation(len(window), epoch, number).numpy()] for number, window in enumerate(windows)]
        )

    def ids(self, step: int) -> np.ndarray:
        """Returns [num_valid] int64: the ids of the examples in the global batch of a step of `training`, in order."""
        uncached = copy.copy(self)
        uncached._kept = {}  # for one batch the whole split is not read into memory, where it may be already
        slices = uncached.training(step).take(self._num_replicas).as_numpy_iterator()
        return np.concatenate([part[self._manifest.id][part["mask"]] for part in slices])

    def _make_plan(self) -> FeedPlan:
        plan = plan_feed(self._manifest, self._split_name, self._config, self._host, evaluation=self._evaluation)
        logger.info("%s: %s", self._split_name, plan.line())
        return plan

    def _epoch(self, epoch: int, batch: int) -> _Epoch:
        """Returns an epoch from one batch on."""
        window, drop = divmod(batch * self.global_batch_size, self._config.window)
        blocks = shuffle_blocks(self._blocks, seed=self._seed, epoch=epoch).start_at(window * self._config.window)
        return epoch, window, drop, blocks.table()

    def _batches(self, epoch: Callable[[int], _Epoch], numbers: range, *, shuffle: bool) -> tf.data.Dataset:
        """Returns the slices of the batches of the epochs of these `numbers`.

        With op determinism TensorFlow prefetches nothing, and calls nothing in parallel, in a pipeline that has an op
        with a state: a generator, a lookup table or `from_tensors` anywhere in it makes every step wait for its batch.
        """

        read, decode, rows = self._source()

        def plan(number: tf.Tensor) -> tuple[Any, ...]:
            *planned, blocks = tf.numpy_function(
                lambda n: tuple(np.asarray(part, np.int64) for part in epoch(int(n))),
                [number],
                [tf.int64] * 4,
                stateful=False,
            )
            columns = cache.columns(rows, number)
            return *(tf.ensure_shape(part, []) for part in planned), tf.ensure_shape(blocks, [None, 5]), columns

        def shuffled(
            epoch: tf.Tensor, first_window: tf.Tensor, drop: tf.Tensor, blocks: tf.Tensor, columns: dict[str, tf.Tensor]
        ) -> tf.data.Dataset:
            batches = ordered(epoch, first_window, drop, tf.data.Dataset.from_tensor_slices(blocks).flat_map(read))
            return batches.map(lambda places: cache.pick(columns, places)) if columns else batches

        def ordered(
            epoch: tf.Tensor, first_window: tf.Tensor, drop: tf.Tensor, examples: tf.data.Dataset
        ) -> tf.data.Dataset:
            if not shuffle:
                return examples.rebatch(self.global_batch_size)

            def permute(window: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
                mixed = tf.gather(batch, self._permutation(tf.shape(batch)[0], epoch, window))
                return mixed[tf.where(window == first_window, drop, tf.zeros_like(drop)) :]

            windows = examples.rebatch(self._config.window).enumerate(first_window).map(permute)
            return windows.rebatch(self.global_batch_size, drop_remainder=self._config.last_batch == "drop")

        batches = tf.data.Dataset.range(numbers.start, numbers.stop).map(plan).flat_map(shuffled)
        if decode is not None:
            batches = _map(batches, decode, self.plan.parallel_calls)
        slices = batches.map(self._pad_and_slice).flat_map(tf.data.Dataset.from_tensor_slices)
        return slices.prefetch(self.plan.prefetch_batches * self._num_replicas)

    def _source(self) -> tuple[_Read, _Decode | None, cache.Rows]:
        """Returns how to read a block, how to decode a batch of what was read, and the rows to look it up in instead.

        What follows the decoding of a batch is not in here, so that rows hold what is before it.
        """
        if self._kept is None:
            self._kept = self._fill()
        kept = self._kept
        if isinstance(kept, np.ndarray):
            return _read_rows, lambda places: self._decode(cache.pick_records(kept, places)), {}
        return (_read_rows, None, kept) if kept else (self._read_records(), self._decode, {})

    def _fill(self) -> np.ndarray | cache.Rows:
        """Returns what the planned cache keeps: all records, or rows; none, and plans anew, if a disk refuses them."""
        columns = self._columns()
        if self.plan.cache == "none":
            return {}
        if self.plan.cache == "memory":
            return cache.records_in_memory(self._in_order(self._example_bytes), self.num_examples)
        decoded = _map(self._in_order(num_bytes(columns.values())), self._decode, self.plan.fill_calls).prefetch(1)
        if self.plan.cache == "decoded":
            return cache.rows_in_memory(decoded, columns, self.num_examples)
        rows = cache.rows_on_disk(self._cache_directory(columns), decoded, columns, self.num_examples)
        if rows is None:
            self._config = self._config.model_copy(update={"cache": "none"})
            self.plan = self._make_plan()
        return rows or {}

    def _columns(self) -> Signature:
        """Returns what a decoded batch holds: the model's inputs, with label and id."""
        keys = {name: self._manifest.features[name] for name in (self._manifest.target, self._manifest.id)}
        return self._preprocess.inputs | {name: (stored_shape(key), key.dtype) for name, key in keys.items()}

    def _cache_directory(self, columns: Signature) -> Path:
        """Returns where the decoded split lies on disk: its name stands for all that its content follows from."""
        content = {
            "data": self._manifest.data_digest,
            "shards": [shard.sha256 for shard in self._split.shards],
            "split": self._split_name,
            "settings": self._config.model_dump(mode="json", exclude=set(_AFTER_DECODING)),
            "columns": columns,
            "format": cache.FORMAT_VERSION,
            "tensorflow": tf.__version__,  # its decoders
        }
        return self._directory.parent / CACHES / digest_json(content)[:16]

    def _in_order(self, example_bytes: int) -> tf.data.Dataset:
        """Returns the records of the split in storage order, in batches that are small, decoded to that size too."""
        files = [str(self._directory / shard.file) for shard in self._split.shards]
        records = tf.data.TFRecordDataset(
            files, COMPRESSION_TYPES[self._manifest.compression], buffer_size=READ_BUFFER_BYTES
        )
        return records.batch(cache.batch_size(max(example_bytes, self._example_bytes)))

    def _read_records(self) -> _Read:
        """Returns how to read the records of a block at once."""
        files = tf.constant([str(self._directory / shard.file) for shard in self._split.shards])

        def read(block: tf.Tensor) -> tf.data.Dataset:
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

        return read

    def _decode(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what a model sees of a batch of records, [b] string, with label and id."""
        parsed = parse_batch(records, self._manifest.features, self._names)
        return self._preprocess(parsed) | {name: parsed[name] for name in (self._manifest.target, self._manifest.id)}

    def _permutation(self, size: int | tf.Tensor, epoch: int | tf.Tensor, window: int | tf.Tensor) -> tf.Tensor:
        """Returns [size] int32, the order within a window; the algorithm is fixed, so that no device changes it."""
        seed = tf.stack([tf.cast(epoch, tf.int64) * 2**31 + self._seed, tf.cast(window, tf.int64)])
        return tf.random.experimental.stateless_shuffle(tf.range(size), seed=seed, alg="philox")

    def _pad_and_slice(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns {name: [num_replicas, b, ...]}: copies of the last example behind it make the slices even.

        Not zeros: a model that divides by, say, an image's norm would make them NaN, and its gradient with them.
        """
        replicas = self._num_replicas
        rows = -(-self.global_batch_size // replicas)
        num_valid = tf.shape(batch[self._manifest.id])[0]
        places = tf.range(rows * replicas)

        def cut(column: tf.Tensor) -> tf.Tensor:
            return tf.reshape(column, [replicas, rows, *column.shape[1:]])

        def pad() -> dict[str, tf.Tensor]:
            return {name: tf.gather(column, tf.minimum(places, num_valid - 1)) for name, column in batch.items()}

        # Nearly all batches are full, and to copy them would cost half as much as to look their rows up.
        padded = tf.cond(num_valid == rows * replicas, lambda: dict(batch), pad)
        return {name: cut(column) for name, column in padded.items()} | {
            "mask": cut(places < num_valid),
            "first_row": tf.range(replicas, dtype=tf.int64) * rows,
            "num_valid": tf.fill([replicas], tf.cast(num_valid, tf.int64)),
        }

    def _check(self, split: str) -> None:
        config = self._config
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"feed.global_batch_size={config.global_batch_size}: the {split} split has only {self.num_examples} "
                "examples and feed.last_batch=drop leaves none; take a smaller batch or feed.last_batch=keep"
            )
        if config.window < self.num_examples and config.window < MIN_BLOCKS_PER_WINDOW * config.block:
            raise ConfigError(
                f"feed.window={config.window}: must hold at least {MIN_BLOCKS_PER_WINDOW} blocks of "
                f"feed.block={config.block} to mix the {self.num_examples} examples; "
                f"take at least {MIN_BLOCKS_PER_WINDOW * config.block}"
            )


def evaluation_feed(
    directory: Path, manifest: ShardManifest, split: str, config: FeedConfig, *, batch_size: int, num_replicas: int
) -> Feed:
    """Returns the feed that shows each example of a split once, for validation and evaluation."""
    # It shuffles nothing, so it holds no more than a few blocks.
    window = MIN_BLOCKS_PER_WINDOW * config.block
    settings = config.model_copy(update={"global_batch_size": batch_size, "last_batch": "keep", "window": window})
    return Feed(directory, manifest, split, settings, seed=0, num_replicas=num_replicas, evaluation=True)


def _map(dataset: tf.data.Dataset, function: Callable[..., Any], parallel_calls: int) -> tf.data.Dataset:
    """Returns the dataset mapped, in its order."""
    if parallel_calls == 1:
        return dataset.map(function)
    return dataset.map(function, num_parallel_calls=parallel_calls, deterministic=True)


def _read_rows(block: tf.Tensor) -> tf.data.Dataset:
    """Returns the places of a block's rows in the split, at once."""
    _, _, _, count, row = tf.unstack(block)
    return tf.data.Dataset.from_tensor_slices(tf.range(row, row + count)[tf.newaxis])
