"""Feed: the shards of a split as tf.data, in an order that is a function of seed, epoch and manifest."""

import copy
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.blocks import cut_blocks, shuffle_blocks
from tasks.feed.parse import parse_batch, stored_shape
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import COMPRESSION_TYPES
from tasks.prepare.manifest import ShardManifest

READ_BUFFER_BYTES = 256 * 1024
STRING_BYTES = 24  # of a string in a tensor, besides its content; tensorflow/core/platform/tstring.h
MIN_BLOCKS_PER_WINDOW = 5  # with fewer, a window holds many neighbours and hardly mixes them

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
    ) -> None:
        """Plans the feed; raises ConfigError if the config does not fit the split. Reads nothing yet."""
        self._directory, self._manifest, self._split = directory, manifest, manifest.splits[split]
        self._config, self._seed, self._num_replicas = config, seed, num_replicas
        self._blocks = cut_blocks(manifest, split, block=config.block)
        self.num_examples = self._split.num_examples
        self.global_batch_size = config.global_batch_size
        rounded = math.floor if config.last_batch == "drop" else math.ceil
        self.steps_per_epoch = rounded(self.num_examples / self.global_batch_size)
        self._check(split)
        self._preprocess = Preprocess(manifest, config)
        self._names = (*self._preprocess.names, manifest.target, manifest.id)
        self._cached = config.cache == "memory" or (
            config.cache == "auto" and self.cached_bytes <= config.memory_limit.size_bytes / 2
        )

    @property
    def cached(self) -> bool:
        """Whether the split stays in memory."""
        return self._cached

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
        uncached._cached = False  # for one batch the whole split is not read into memory, where it may be already
        slices = uncached.training(step).take(self._num_replicas).as_numpy_iterator()
        return np.concatenate([part[self._manifest.id][part["mask"]] for part in slices])

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

        def plan(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
            planned = tf.numpy_function(
                lambda n: tuple(np.asarray(part, np.int64) for part in epoch(int(n))),
                [number],
                [tf.int64] * 4,
                stateful=False,
            )
            return *(tf.ensure_shape(part, []) for part in planned[:3]), tf.ensure_shape(planned[3], [None, 5])

        epochs = tf.data.Dataset.range(numbers.start, numbers.stop).map(plan)
        read, decode = self._in_memory() if self._cached else self._from_files()

        def shuffled(epoch: tf.Tensor, first_window: tf.Tensor, drop: tf.Tensor, blocks: tf.Tensor) -> tf.data.Dataset:
            examples = tf.data.Dataset.from_tensor_slices(blocks).flat_map(read)
            if not shuffle:
                return examples.rebatch(self.global_batch_size)

            def permute(window: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
                mixed = tf.gather(batch, self._permutation(tf.shape(batch)[0], epoch, window))
                return mixed[tf.where(window == first_window, drop, tf.zeros_like(drop)) :]

            windows = examples.rebatch(self._config.window).enumerate(first_window).map(permute)
            return windows.rebatch(self.global_batch_size, drop_remainder=self._config.last_batch == "drop")

        batches = epochs.flat_map(shuffled).map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        slices = batches.map(self._pad_and_slice).flat_map(tf.data.Dataset.from_tensor_slices)
        return slices.prefetch(self._config.prefetch_batches * self._num_replicas)

    def _from_files(self) -> tuple[_Read, _Decode]:
        """Returns how to read the records of a block at once, and how to decode a batch of records."""
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

        return read, lambda records: self._inputs(parse_batch(records, self._manifest.features, self._names))

    def _in_memory(self) -> tuple[_Read, _Decode]:
        """Returns how to get the rows of a block at once, and how to look a batch of rows up in the parsed split."""
        table = self._load()

        def read(block: tf.Tensor) -> tf.data.Dataset:
            _, _, _, count, row = tf.unstack(block)
            return tf.data.Dataset.from_tensor_slices(tf.range(row, row + count)[tf.newaxis])

        return read, lambda rows: self._inputs({name: tf.gather(column, rows) for name, column in table.items()})

    def _load(self) -> dict[str, tf.Tensor]:
        files = [str(self._directory / shard.file) for shard in self._split.shards]
        parts = [
            parse_batch(records, self._manifest.features, self._names)
            for records in tf.data.TFRecordDataset(
                files, COMPRESSION_TYPES[self._manifest.compression], buffer_size=READ_BUFFER_BYTES
            ).batch(4096)
        ]
        return {name: tf.concat([part[name] for part in parts], axis=0) for name in self._names}

    def _inputs(self, parsed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns what a model sees of a batch as it is stored, with label and id."""
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

        return {name: cut(tf.gather(column, tf.minimum(places, num_valid - 1))) for name, column in batch.items()} | {
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
        example_bytes = sum(shard.record_bytes for shard in self._split.shards) / self.num_examples
        needed = min(config.window, self.num_examples) * example_bytes
        if needed > config.memory_limit.size_bytes:
            raise ConfigError(
                f"feed.window={config.window} examples of {example_bytes / 1e3:.1f} KB need {needed / 1e9:.1f} GB, "
                f"over feed.memory_limit={config.memory_limit}; use at most "
                f"{int(config.memory_limit.size_bytes / example_bytes)}, or raise the limit"
            )


def evaluation_feed(
    directory: Path, manifest: ShardManifest, split: str, config: FeedConfig, *, batch_size: int, num_replicas: int
) -> Feed:
    """Returns the feed that shows each example of a split once, for validation and evaluation."""
    # It shuffles nothing, so it holds no more than a few blocks.
    window = MIN_BLOCKS_PER_WINDOW * config.block
    settings = config.model_copy(update={"global_batch_size": batch_size, "last_batch": "keep", "window": window})
    return Feed(directory, manifest, split, settings, seed=0, num_replicas=num_replicas)
