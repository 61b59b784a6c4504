"""Feed: the shards of a split as tf.data, in an order that is a function of seed, epoch and manifest."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.augment import Augment
from tasks.feed.balance import MAX_DRAWN, class_weights, draw_balanced
from tasks.feed.blocks import cut_blocks, shuffle_blocks
from tasks.feed.permutation import permutation, seed_of
from tasks.feed.plan import FeedPlan
from tasks.feed.preprocess import Preprocess
from tasks.feed.reader import Examples, Features, Reader, map_parallel
from tasks.feed.service import served
from tasks.feed.share import plan_share
from tasks.prepare.manifest import ShardManifest

MIN_BLOCKS_PER_WINDOW = 5  # with fewer, a window holds many neighbours and hardly mixes them
_DRAW = 2**32  # tells the seed of a draw from that of the shuffle of the same window

# Its number, the batches that are left of it, the first window, examples to drop in that, blocks [n, 5].
_Epoch = tuple[int, int, int, int, np.ndarray]
_Decode = Callable[[Any, tf.Tensor, tf.Tensor], Features]  # of a worker's rows, the epoch, and how many are no padding


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
        evaluation: bool = False,
        microbatch: int | None = None,
    ) -> None:
        """Plans the feed, for `microbatch` rows of a slice at once, by default all of them.

        Raises ConfigError if the config does not fit the split. Reads nothing yet.
        """
        self._manifest, self._config, self._seed = manifest, config, seed
        found = manifest.splits[split]
        self._share = plan_share(
            found,
            config,
            name=split,
            num_replicas=num_replicas,
            num_workers=num_workers,
            worker=worker,
            microbatch=microbatch,
        )
        blocks = cut_blocks(manifest, split, block=config.block)
        self._blocks = blocks.take(np.flatnonzero(np.isin(blocks.file, self._share.files)))
        self.num_examples = found.num_examples
        self.global_batch_size = config.global_batch_size
        self.steps_per_epoch = self._share.steps_per_epoch
        self.num_microbatches = self._share.num_microbatches
        self.microbatch = self._share.microbatch
        self.slice_rows = self._share.slice_size
        self.rows_at_once = self._share.microbatch * num_replicas
        self._check_window()
        preprocess = Preprocess(manifest, config)
        self._augment = Augment(manifest, config, preprocess, seed=seed) if config.augment else None
        self._weights = class_weights(found.class_counts) if config.sampling == "class_balanced" else None
        self._reader = Reader(
            directory, manifest, split, config, preprocess=preprocess, augment=self._augment, evaluation=evaluation
        )

    @property
    def plan(self) -> FeedPlan:
        """How it does its work on this host."""
        return self._reader.plan

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
        """Returns [n] int64: rows of the split in the order in which an epoch shows them; n: all that are read.

        With `feed.sampling=class_balanced` it shows others of the same windows, which depend on their labels.
        """
        rows = shuffle_blocks(self._blocks, seed=self._seed, epoch=epoch).rows()
        windows = np.split(rows, range(self._config.window, len(rows), self._config.window))
        return np.concatenate(
            [window[permutation(len(window), self._seed, epoch, place).numpy()] for place, window in enumerate(windows)]
        )

    def ids(self, step: int) -> np.ndarray | None:
        """Returns [n] int64: the ids of the examples in the batch read for a step of `training`, in order.

        None if `feed.service` hands them on in an order of its own.
        """
        if self._config.service is not None:
            return None
        uncached = copy.copy(self)  # for one batch the whole split is not read into memory, where it may be already
        uncached._reader, uncached._share = self._reader.unfilled(), self._share.whole()
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
        reader = self._reader
        reader.fill()

        def plan(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, Features]:
            *numbers, blocks = tf.numpy_function(
                lambda n: tuple(np.asarray(part, np.int64) for part in epoch(int(n))),
                [number],
                [tf.int64] * 5,
                stateful=False,
            )
            return tf.ensure_shape(tf.stack(numbers), [4]), tf.ensure_shape(blocks, [None, 5]), reader.columns(number)

        def batches_of(numbers: tf.Tensor, blocks: tf.Tensor, columns: Features) -> tf.data.Dataset:
            epoch, num_batches, first_window, drop = (numbers[place] for place in range(4))
            batch_size = self._share.batch_size

            # Each copy of a record counts: a window that is a number of whole batches is not put together again.
            whole = self._config.window % batch_size == 0

            def mix(number: tf.Tensor, window: Examples) -> tf.data.Dataset:
                order = self._mixed(window, columns, epoch, number)
                order = order[tf.where(number == first_window, drop, tf.zeros_like(drop)) :]
                size = tf.size(order, tf.int64)
                step = tf.constant(batch_size, tf.int64) if whole else size
                starts = tf.data.Dataset.range(0, size, step)
                return starts.map(lambda start: tf.gather(window, order[start : start + step]))

            if shuffle:
                windows = reader.read(blocks, self._config.window).enumerate(first_window).flat_map(mix)
                batches = (windows if whole else windows.rebatch(batch_size)).take(num_batches)
            else:
                batches = reader.read(blocks, batch_size)

            def share(batch: Examples) -> tuple[Any, ...]:
                rows, num_valid, known = self._take_share(batch)
                return epoch, reader.decode(rows, columns, epoch) if columns else rows, num_valid, known

            return batches.map(share)

        def decode(rows: Any, epoch: tf.Tensor, num_valid: tf.Tensor) -> Features:
            features = rows if isinstance(rows, dict) else reader.decode(rows, {}, epoch if shuffle else None)
            return self._change(features, epoch, num_valid) if shuffle else features

        shares = tf.data.Dataset.range(numbers.start, numbers.stop).map(plan).flat_map(batches_of)
        return self._slices(shares, decode)

    def _served(self, address: str, start_step: int) -> tf.data.Dataset:
        """Returns the slices of batches that a tf.data service reads and decodes."""
        reader = self._reader  # without a cache, as is planned for a service

        def decode(epoch: tf.Tensor, batch: Examples) -> Features:
            return self._change(reader.decode(batch, {}, epoch), epoch, tf.size(batch))

        batches = served(
            address,
            self._blocks,
            reader.read,
            decode,
            seed=self._seed,
            window=self._config.window,
            batch_size=self.global_batch_size,
            start=start_step * self.global_batch_size,
        )
        shares = batches.map(lambda batch: (tf.constant(0, tf.int64), *self._take_share(batch)))
        return self._slices(shares, lambda batch, *_: batch)

    def _slices(self, shares: tf.data.Dataset, decode: _Decode) -> tf.data.Dataset:
        """Returns the slices of this worker's replicas, one after another, made ahead of whoever takes them."""

        def slices(epoch: tf.Tensor, rows: Any, num_valid: tf.Tensor, known: Features) -> Features:
            return {name: self._cut(column) for name, column in decode(rows, epoch, num_valid).items()} | known

        elements = map_parallel(shares, slices, self.plan.parallel_calls).flat_map(tf.data.Dataset.from_tensor_slices)
        return elements.prefetch(self.plan.prefetch_batches * self._share.num_replicas)

    def _change(self, features: Features, epoch: tf.Tensor, num_valid: tf.Tensor) -> Features:
        return features if self._augment is None else self._augment(features, epoch, num_valid)

    def _mixed(self, window: Examples, columns: Features, epoch: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Returns [n] int32: which of a window's examples comes at each place."""
        order = permutation(tf.shape(window)[0], self._seed, epoch, number)
        if self._weights is None:
            return order
        labels = self._reader.labels(window, columns)
        drawn = draw_balanced(labels, self._weights, seed_of(self._seed, epoch, _DRAW + number))
        return tf.gather(drawn, order)

    def _take_share(self, batch: Examples | Features) -> tuple[Any, tf.Tensor, Features]:
        """Returns this worker's rows of a batch, how many are not padding, and what its slices say of them.

        Copies of the last example behind it make the slices even. Not zeros: a model that divides by, say, an image's
        norm would make them NaN, and its gradient with them.
        """
        share, rows = self._share, self._share.num_replicas * self._share.slice_size
        num_read = tf.shape(tf.nest.flatten(batch)[0])[0]
        places = share.start + tf.range(rows)
        firsts = share.first_row + tf.range(0, rows, share.microbatch, dtype=tf.int64)

        def pick() -> Any:
            return tf.nest.map_structure(lambda column: tf.gather(column, tf.minimum(places, num_read - 1)), batch)

        # Nearly all batches are full, and to copy their records is a good part of what a batch costs.
        all_rows = share.start == 0 and rows == share.batch_size
        picked = tf.cond(num_read == rows, lambda: batch, pick) if all_rows else pick()
        return (
            picked,
            tf.clip_by_value(num_read - share.start, 0, rows),
            {
                "mask": self._cut(places < num_read),
                "first_row": tf.transpose(tf.reshape(firsts, [share.num_microbatches, share.num_replicas])),
                "num_valid": tf.fill([share.num_replicas], share.num_parts * tf.cast(num_read, tf.int64)),
            },
        )

    def _cut(self, column: tf.Tensor) -> tf.Tensor:
        """Returns [num_replicas, b, ...] of [num_replicas * b, ...]: microbatch by microbatch, all replicas'."""
        share, shape = self._share, column.shape[1:]
        if share.num_microbatches > 1:
            pieces = tf.reshape(column, [share.num_microbatches, share.num_replicas, share.microbatch, *shape])
            column = tf.transpose(pieces, [1, 0, *range(2, len(pieces.shape))])
        return tf.reshape(column, [share.num_replicas, share.slice_size, *shape])

    def _check_window(self) -> None:
        config = self._config
        if config.window < self.num_examples and config.window < MIN_BLOCKS_PER_WINDOW * config.block:
            raise ConfigError(
                f"feed.window={config.window}: must hold at least {MIN_BLOCKS_PER_WINDOW} blocks of "
                f"feed.block={config.block} to mix the {self.num_examples} examples; "
                f"take at least {MIN_BLOCKS_PER_WINDOW * config.block}"
            )
        if config.sampling == "class_balanced" and min(config.window, self.num_examples) > MAX_DRAWN:
            raise ConfigError(
                f"feed.window={config.window}: feed.sampling=class_balanced draws from at most {MAX_DRAWN} examples at "
                "once; take no more"
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
    settings = config.model_copy(
        update={
            "global_batch_size": batch_size,
            "last_batch": "keep",
            "shard_policy": "records",
            "service": None,
            "augment": (),
            "sampling": "uniform",
            # It shuffles nothing, so it holds no more than a few blocks.
            "window": MIN_BLOCKS_PER_WINDOW * config.block,
        }
    )
    return Feed(
        directory,
        manifest,
        split,
        settings,
        seed=0,
        num_replicas=num_replicas,
        num_workers=num_workers,
        worker=worker,
        evaluation=True,
    )
