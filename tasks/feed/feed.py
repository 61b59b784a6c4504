"""Feed: the shards of a split as tf.data, in an order that is a function of seed, epoch and manifest."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.augment import Augment
from tasks.feed.blocks import cut_blocks, shuffle_blocks
from tasks.feed.parse import parse_batch, stored_shape
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import COMPRESSION_TYPES
from tasks.feed.service import served
from tasks.feed.share import plan_share
from tasks.prepare.manifest import ShardManifest

READ_BUFFER_BYTES = 256 * 1024
STRING_BYTES = 24  # of a string in a tensor, besides its content; tensorflow/core/platform/tstring.h
MIN_BLOCKS_PER_WINDOW = 5  # with fewer, a window holds many neighbours and hardly mixes them

# Its number, the batches that are left of it, the first window, examples to drop in that, blocks [n, 5].
_Epoch = tuple[int, int, int, int, np.ndarray]
_Read = Callable[[tf.Tensor], tf.data.Dataset]  # of a block [5]
_Decode = Callable[..., dict[str, tf.Tensor]]  # of an epoch, rows of a batch, and how many of them are not padding
_Parse = Callable[[tf.Tensor], dict[str, tf.Tensor]]  # of a batch of what was read: the features as they are stored


class Feed:
    """Global batches of one split, padded to the replicas and cut into one slice for each.

    An element is a dict of one replica's slice: the inputs of `Preprocess`, label and id by name ([b, ...]), `mask`
    ([b] bool, False for padding), `first_row` ([k] int64, place in the global batch of the first row of each of its k
    microbatches, [b / k] rows each), `num_valid` ([] int64, examples in the whole global batch) and, in training, what
    `Augment` adds. The slices of a batch come one after another, those of this worker's replicas only: of
    `num_workers`, each with equally many of all the `num_replicas`, it is number `worker`.

    The first microbatches of all replicas hold a worker's first rows, the second ones those that follow: which examples
    are taken at the same time depends on how many they are, not on how many replicas share them.
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
        num_workers: int = 1,
        worker: int = 0,
        microbatch: int | None = None,
    ) -> None:
        """Plans the feed, for `microbatch` rows of a slice at once, by default all of them.

        Raises ConfigError if the config does not fit the split. Reads nothing yet.
        """
        self._directory, self._manifest, self._split = directory, manifest, manifest.splits[split]
        self._config, self._seed = config, seed
        self._share = plan_share(
            self._split,
            config,
            name=split,
            num_replicas=num_replicas,
            num_workers=num_workers,
            worker=worker,
            microbatch=microbatch,
        )
        blocks = cut_blocks(manifest, split, block=config.block)
        self._blocks = blocks.take(np.flatnonzero(np.isin(blocks.file, self._share.files)))
        self.num_examples = self._split.num_examples
        self.global_batch_size = config.global_batch_size
        self.steps_per_epoch = self._share.steps_per_epoch
        self.num_microbatches = self._share.num_microbatches
        self.rows_at_once = self._share.microbatch * num_replicas
        self._check()
        self._preprocess = Preprocess(manifest, config)
        self._augment = Augment(manifest, config, self._preprocess, seed=seed) if config.augment else None
        self._names = (*self._preprocess.names, manifest.target, manifest.id)
        self._cached = config.cache == "memory" or (
            config.cache == "auto" and self.cached_bytes <= config.memory_limit.size_bytes / 2
        )

    @property
    def cached_bytes(self) -> int:
        """Size in bytes of the split in the cache: its features as they are stored, so that images stay encoded."""
        features = [self._manifest.features[name] for name in self._names]
        strings = [feature for feature in features if feature.dtype == "string"]
        numbers = [feature for feature in features if feature.dtype != "string"]
        example_bytes = sum(math.prod(stored_shape(f)) * np.dtype(f.dtype).itemsize for f in numbers)
        # The content of strings is not counted by itself; it is no more than the shards.
        content_bytes = sum(shard.record_bytes for shard in self._split.shards) if strings else 0
        return self.num_examples * (example_bytes + len(strings) * STRING_BYTES) + content_bytes

    def training(self, start_step: int) -> tf.data.Dataset:
        """Returns an endless dataset that begins with the batch of `start_step`, epoch after epoch."""
        if self._config.service is not None:
            return self._served(self._config.service, start_step)
        first_epoch, first_batch = divmod(start_step, self.steps_per_epoch)

        def epoch(number: int) -> _Epoch:
            return self._epoch(number, first_batch if number == first_epoch else 0)

        return self._batches(epoch, range(first_epoch, 2**31), shuffle=True)

    def one_pass(self) -> tf.data.Dataset:
        """Returns every example once, in storage order; the last batch is padded."""

        whole = (0, self.steps_per_epoch, 0, 0, self._blocks.table())
        return self._batches(lambda _: whole, range(1), shuffle=False)

    def order(self, epoch: int) -> np.ndarray:
        """Returns [n] int64: rows of the split in the order in which an epoch shows them; n: all that are read."""
        rows = shuffle_blocks(self._blocks, seed=self._seed, epoch=epoch).rows()
        windows = np.split(rows, range(self._config.window, len(rows), self._config.window))
        return np.concatenate(
            [window[self._permutation(len(window), epoch, number).numpy()] for number, window in enumerate(windows)]
        )

    def ids(self, step: int) -> np.ndarray | None:
        """Returns [n] int64: the ids of the examples in the batch read for a step of `training`, in order.

        None if `feed.service` hands them on in an order of its own.
        """
        if self._config.service is not None:
            return None
        uncached = copy.copy(self)
        uncached._cached = False  # for one batch the whole split is not read into memory, where it may be already
        uncached._share = self._share.whole()
        batch = next(uncached.training(step).as_numpy_iterator())
        return np.asarray(batch[self._manifest.id][batch["mask"]])

    def _epoch(self, epoch: int, batch: int) -> _Epoch:
        """Returns an epoch from one batch on."""
        window, drop = divmod(batch * self._share.batch_size, self._config.window)
        blocks = shuffle_blocks(self._blocks, seed=self._seed, epoch=epoch).start_at(window * self._config.window)
        return epoch, self.steps_per_epoch - batch, window, drop, blocks.table()

    def _batches(self, epoch: Callable[[int], _Epoch], numbers: range, *, shuffle: bool) -> tf.data.Dataset:
        """Returns the slices of the batches of the epochs of these `numbers`.

        With op determinism TensorFlow prefetches nothing, and calls nothing in parallel, in a pipeline that has an op
        with a state: a generator, a lookup table or `from_tensors` anywhere in it makes every step wait for its batch.
        """

        def plan(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            planned = tf.numpy_function(
                lambda n: tuple(np.asarray(part, np.int64) for part in epoch(int(n))),
                [number],
                [tf.int64] * 5,
                stateful=False,
            )
            return *(tf.ensure_shape(part, []) for part in planned[:-1]), tf.ensure_shape(planned[-1], [None, 5])

        epochs = tf.data.Dataset.range(numbers.start, numbers.stop).map(plan)
        read, parse = self._in_memory() if self._cached else self._from_files()

        def batches_of(
            epoch: tf.Tensor, num_batches: tf.Tensor, first_window: tf.Tensor, drop: tf.Tensor, blocks: tf.Tensor
        ) -> tf.data.Dataset:
            examples = tf.data.Dataset.from_tensor_slices(blocks).flat_map(read)
            if not shuffle:
                return examples.rebatch(self._share.batch_size)

            def permute(window: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
                mixed = tf.gather(batch, self._permutation(tf.shape(batch)[0], epoch, window))
                return mixed[tf.where(window == first_window, drop, tf.zeros_like(drop)) :]

            windows = examples.rebatch(self._config.window).enumerate(first_window).map(permute)
            return windows.rebatch(self._share.batch_size).take(num_batches)

        def numbered(epoch: tf.Tensor, *rest: tf.Tensor) -> tf.data.Dataset:
            return batches_of(epoch, *rest).map(lambda batch: (epoch, batch))

        def decode(epoch: tf.Tensor, rows: tf.Tensor, num_valid: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._inputs(parse(rows), epoch if shuffle else None, num_valid)

        return self._slices(epochs.flat_map(numbered), decode)

    def _served(self, address: str, start_step: int) -> tf.data.Dataset:
        """Returns the slices of batches that a tf.data service reads and decodes."""
        read, parse = self._from_files()
        batches = served(
            address,
            self._blocks,
            read,
            lambda epoch, batch: self._inputs(parse(batch), epoch, tf.size(batch)),
            seed=self._seed,
            window=self._config.window,
            batch_size=self.global_batch_size,
            start=start_step * self.global_batch_size,
        )
        return self._slices(batches.map(lambda batch: (tf.constant(0), batch)), lambda _, batch, __: batch)

    def _slices(self, batches: tf.data.Dataset, decode: _Decode) -> tf.data.Dataset:
        """Returns the slices of this worker's replicas, one after another, made ahead of whoever takes them."""

        def slices(epoch: tf.Tensor, batch: Any) -> dict[str, tf.Tensor]:
            rows, num_valid, what = self._take_share(batch)
            return {name: self._cut(column) for name, column in decode(epoch, rows, num_valid).items()} | what

        elements = batches.map(slices, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).flat_map(
            tf.data.Dataset.from_tensor_slices
        )
        return elements.prefetch(self._config.prefetch_batches * self._share.num_replicas)

    def _from_files(self) -> tuple[_Read, _Parse]:
        """Returns how to read the records of a block at once, and how to parse a batch of records."""
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

        return read, lambda records: parse_batch(records, self._manifest.features, self._names)

    def _in_memory(self) -> tuple[_Read, _Parse]:
        """Returns how to get the rows of a block at once, and how to look a batch of rows up in the parsed split."""
        table = self._load()

        def read(block: tf.Tensor) -> tf.data.Dataset:
            _, _, _, count, row = tf.unstack(block)
            return tf.data.Dataset.from_tensor_slices(tf.range(row, row + count)[tf.newaxis])

        return read, lambda rows: {name: tf.gather(column, rows) for name, column in table.items()}

    def _load(self) -> dict[str, tf.Tensor]:
        files = [str(self._directory / shard.file) for shard in self._split.shards]
        parts = [
            parse_batch(records, self._manifest.features, self._names)
            for records in tf.data.TFRecordDataset(
                files, COMPRESSION_TYPES[self._manifest.compression], buffer_size=READ_BUFFER_BYTES
            ).batch(4096)
        ]
        return {name: tf.concat([part[name] for part in parts], axis=0) for name in self._names}

    def _inputs(
        self, parsed: dict[str, tf.Tensor], epoch: tf.Tensor | None, num_valid: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns what a model sees of rows as they are stored, with label and id; changed at random in an `epoch`."""
        augment = None if epoch is None else self._augment
        inputs = self._preprocess(parsed) if augment is None else augment(parsed, epoch, num_valid)
        return inputs | {name: parsed[name] for name in (self._manifest.target, self._manifest.id)}

    def _permutation(self, size: int | tf.Tensor, epoch: int | tf.Tensor, window: int | tf.Tensor) -> tf.Tensor:
        """Returns [size] int32, the order within a window; the algorithm is fixed, so that no device changes it."""
        seed = tf.stack([tf.cast(epoch, tf.int64) * 2**31 + self._seed, tf.cast(window, tf.int64)])
        return tf.random.experimental.stateless_shuffle(tf.range(size), seed=seed, alg="philox")

    def _take_share(self, batch: Any) -> tuple[Any, tf.Tensor, dict[str, tf.Tensor]]:
        """Returns this worker's rows of a batch, how many are not padding, and what its slices say of them.

        Copies of the last example behind it make the slices even. Not zeros: a model that divides by, say, an image's
        norm would make them NaN, and its gradient with them.
        """
        replicas, rows = self._share.num_replicas, self._share.slice_size
        num_read = tf.shape(tf.nest.flatten(batch)[0])[0]
        places = self._share.start + tf.range(replicas * rows)
        firsts = self._share.first_row + tf.range(0, replicas * rows, self._share.microbatch, dtype=tf.int64)
        shared = tf.nest.map_structure(lambda column: tf.gather(column, tf.minimum(places, num_read - 1)), batch)
        return (
            shared,
            tf.clip_by_value(num_read - self._share.start, 0, replicas * rows),
            {
                "mask": self._cut(places < num_read),
                "first_row": tf.transpose(tf.reshape(firsts, [self._share.num_microbatches, replicas])),
                "num_valid": tf.fill([replicas], self._share.num_parts * tf.cast(num_read, tf.int64)),
            },
        )

    def _cut(self, column: tf.Tensor) -> tf.Tensor:
        """Returns [num_replicas, b, ...] of [num_replicas * b, ...]: microbatch by microbatch, all replicas'."""
        share, shape = self._share, column.shape[1:]
        if share.num_microbatches > 1:
            pieces = tf.reshape(column, [share.num_microbatches, share.num_replicas, share.microbatch, *shape])
            column = tf.transpose(pieces, [1, 0, *range(2, len(pieces.shape))])
        return tf.reshape(column, [share.num_replicas, share.slice_size, *shape])

    def _check(self) -> None:
        config = self._config
        if config.window < self.num_examples and config.window < MIN_BLOCKS_PER_WINDOW * config.block:
            raise ConfigError(
                f"feed.window={config.window}: must hold at least {MIN_BLOCKS_PER_WINDOW} blocks of "
                f"feed.block={config.block} to mix the {self.num_examples} examples; "
                f"take at least {MIN_BLOCKS_PER_WINDOW * config.block}"
            )
        example_bytes = sum(shard.record_bytes for shard in self._split.shards) / self.num_examples
        needed = min(config.window, self.num_examples) * example_bytes
        if needed > config.memory_limit.size_bytes:
            raise ConfigError(
                f"feed.window={config.window} examples of {example_bytes / 1e3:.1f} KB need {needed / 1e9:.1f} GB, "
                f"over feed.memory_limit={config.memory_limit}; use at most "
                f"{int(config.memory_limit.size_bytes / example_bytes)}, or raise the limit"
            )


def evaluation_feed(
    directory: Path,
    manifest: ShardManifest,
    split: str,
    config: FeedConfig,
    *,
    batch_size: int,
    num_replicas: int,
    num_workers: int = 1,
    worker: int = 0,
) -> Feed:
    """Returns the feed that shows each example of a split once, for validation and evaluation."""
    # It shuffles nothing, so it holds no more than a few blocks.
    window = MIN_BLOCKS_PER_WINDOW * config.block
    settings = config.model_copy(
        update={"global_batch_size": batch_size, "last_batch": "keep", "window": window, "augment": ()}
        | {"shard_policy": "records", "service": None}  # each example once
    )
    return Feed(
        directory, manifest, split, settings, seed=0, num_replicas=num_replicas, num_workers=num_workers, worker=worker
    )
