"""Share: which rows of every global batch one worker's replicas get, and from which shards it reads them."""

from dataclasses import dataclass, replace

from tasks.augmentation import Cutmix, Mixup
from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.prepare.manifest import SplitManifest


@dataclass(frozen=True)
class Share:
    """The slices of one worker; all workers have equally many replicas, and all slices equally many rows."""

    num_replicas: int
    """Replicas of this worker."""
    slice_size: int
    """Rows of each replica's slice, padding included."""
    microbatch: int
    """Rows of a slice that are taken at once; they divide it."""
    first_row: int
    """Place of the worker's first row in the global batch."""
    start: int
    """Its place in the batch that the worker reads."""
    batch_size: int
    """Examples in the batches that the worker reads."""
    num_parts: int
    """How many batches, each read by another worker, make up a global batch."""
    files: range
    """Which of the split's shards the worker reads."""
    steps_per_epoch: int
    """The same for all workers."""

    @property
    def num_microbatches(self) -> int:
        """In each slice."""
        return self.slice_size // self.microbatch

    def whole(self) -> "Share":
        """Returns the share of a single replica that gets all of what this worker reads."""
        return replace(
            self, num_replicas=1, slice_size=self.batch_size, microbatch=self.batch_size, first_row=0, start=0
        )


def plan_share(
    split: SplitManifest,
    config: FeedConfig,
    *,
    name: str,
    num_replicas: int,
    num_workers: int,
    worker: int,
    microbatch: int | None = None,
) -> Share:
    """Returns the share of one of `num_workers`, which have `num_replicas` together; `name` is the split's.

    A slice has as many rows as its part of the global batch, and more if they are no multiple of `microbatch`.

    With shard_policy=records every worker reads all records and takes its rows, so that the global batches are those
    of a single worker. With `files` each reads shards of its own: what is in a batch depends on the number of workers,
    and the end of an epoch for which one of them has no full part is left out. Raises ConfigError if the config does
    not fit.
    """
    assert num_replicas % num_workers == 0 <= worker < num_workers
    if config.service is not None and num_workers > 1:
        raise ConfigError(
            f"feed.service={config.service}: feeds one worker, and there are {num_workers}; let each decode its own "
            "rows (leave the service out)"
        )
    num_parts = num_workers if config.shard_policy == "files" else 1
    mixes = any(isinstance(change, Mixup | Cutmix) for change in config.augment)
    if mixes and config.global_batch_size < 2 * num_parts:
        raise ConfigError(
            f"feed.global_batch_size={config.global_batch_size}: feed.augment mixes rows in pairs; take at "
            f"least {2 * num_parts}"
        )
    if config.shard_policy == "files" and num_workers > 1:
        share = _share_of_files(split, config, name=name, num_replicas=num_replicas, readers=(worker, num_workers))
        slice_size, microbatch = _cut_slice(share.slice_size, microbatch)
        return replace(share, slice_size=slice_size, microbatch=microbatch)
    global_batch_size = config.global_batch_size
    steps_per_epoch, rest = divmod(split.num_examples, global_batch_size)
    if rest and config.last_batch == "keep":
        steps_per_epoch += 1
    if not steps_per_epoch:
        raise ConfigError(
            f"feed.global_batch_size={global_batch_size}: the {name} split has only {split.num_examples} "
            "examples and feed.last_batch=drop leaves none; take a smaller batch or feed.last_batch=keep"
        )
    slice_size, microbatch = _cut_slice(-(-global_batch_size // num_replicas), microbatch)
    rows = num_replicas // num_workers * slice_size
    if rows % 2 and num_workers > 1 and mixes:
        raise ConfigError(
            f"feed.global_batch_size={global_batch_size}: makes {rows} rows for each of {num_workers} workers, and "
            f"feed.augment mixes rows in pairs; take {2 * num_replicas * -(-slice_size // 2)}"
        )
    first_row = worker * rows
    return Share(
        num_replicas=num_replicas // num_workers,
        slice_size=slice_size,
        microbatch=microbatch,
        first_row=first_row,
        start=first_row,
        batch_size=global_batch_size,
        num_parts=1,
        files=range(len(split.shards)),
        steps_per_epoch=steps_per_epoch,
    )


def _cut_slice(num_rows: int, microbatch: int | None) -> tuple[int, int]:
    """Returns the rows of a slice that holds `num_rows`, and those of its microbatches."""
    microbatch = min(num_rows, microbatch or num_rows)
    return -(-num_rows // microbatch) * microbatch, microbatch


def _share_of_files(
    split: SplitManifest, config: FeedConfig, *, name: str, num_replicas: int, readers: tuple[int, int]
) -> Share:
    worker, num_workers = readers
    num_shards = len(split.shards)
    if num_shards < num_workers:
        raise ConfigError(
            f"feed.shard_policy=files: the {name} split has {num_shards} shard(s) for {num_workers} workers; write it "
            f"anew with data.shard_multiple={num_workers}, or take feed.shard_policy=records"
        )
    if config.global_batch_size % num_replicas:
        raise ConfigError(
            f"feed.global_batch_size={config.global_batch_size}: with feed.shard_policy=files it must be a multiple of "
            f"the {num_replicas} replicas, each of which takes its part from its worker's shards"
        )
    files = [range(reader, num_shards, num_workers) for reader in range(num_workers)]
    fewest = min(sum(split.shards[file].num_examples for file in own) for own in files)
    batch_size = config.global_batch_size // num_workers
    if fewest < batch_size:
        raise ConfigError(
            f"feed.global_batch_size={config.global_batch_size}: with feed.shard_policy=files each of {num_workers} "
            f"workers takes {batch_size} examples from its own shards, and one has only {fewest} of the {name} split; "
            "take a smaller batch or feed.shard_policy=records"
        )
    return Share(
        num_replicas=num_replicas // num_workers,
        slice_size=config.global_batch_size // num_replicas,
        microbatch=config.global_batch_size // num_replicas,
        first_row=worker * batch_size,
        start=0,
        batch_size=batch_size,
        num_parts=num_workers,
        files=files[worker],
        steps_per_epoch=fewest // batch_size,
    )
