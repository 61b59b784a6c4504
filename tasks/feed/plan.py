"""FeedPlan: how a feed does its work on this host, chosen from sizes and limits; it never changes what is fed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.augmentation import Color, Mixup, RandomResizedCrop
from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.host_facts import HostFacts
from tasks.feed.signature import (
    PARALLEL_IMAGES,
    augmented_input,
    channels,
    decoded_signature,
    decodes_windows,
    feature_names,
    num_bytes,
    stored_shape,
)
from tasks.prepare.manifest import ShardManifest

Cache = Literal["decoded", "memory", "disk", "none"]

CACHES = "cache"  # folder of the caches on disk, beside the folder of the shards
PREFETCH_BATCHES = 4  # enough to level out a slow batch; more was not shown to help
HELD_BATCHES = 2  # besides: one that is padded and cut, and one that was just taken
WINDOW_COPIES = 3  # of a window, at most: its blocks, one piece of them, and what is left of the last one (measured)
ROW_BYTES = 8  # of a row's number, which is all that a cache needs of an example in an epoch and its windows
FILL_BATCH_BYTES = 10**6  # of what is decoded at once to fill a cache
FILL_COPIES = 3  # of such a batch: its records, their features, and what is made of those
AUGMENT_COPIES = 4  # of the images of a batch while they are changed (measured)
FLOAT_BYTES = 4  # of a number as which the pixels of images are blended
RECORD_BYTES = 56  # of a record in memory, besides its content: Python's bytes, and where they are


@dataclass(frozen=True)
class FeedPlan:
    """The choices for one feed, what each of its parts takes of memory, and why."""

    cache: Cache
    """Where the split is kept: as a model sees it in memory (decoded) or on disk, as it is stored (memory), nowhere."""
    prefetch_batches: int
    """Global batches that are made ahead."""
    parallel_calls: int
    """Global batches that are decoded at once."""
    fill_calls: int
    """Small batches that are decoded at once to fill a cache."""
    cache_bytes: int
    """Of the split as it is kept, on disk or in memory; 0 without a cache."""
    memory_bytes: int
    """What cache, window and batches take of memory at most."""
    reasons: tuple[str, ...]
    """Why, a short sentence for each choice."""

    def line(self) -> str:
        """Returns the whole plan in one line."""
        return f"feed: {'; '.join(self.reasons)}; {_size(self.memory_bytes)} of memory at most"


def plan_feed(
    manifest: ShardManifest, split: str, config: FeedConfig, host: HostFacts, *, evaluation: bool = False
) -> FeedPlan:
    """Returns how to feed a split; `evaluation`: each example once and in order, so that decoding ahead gains nothing.

    What the config sets by hand is taken. Raises ConfigError if the feed of a training would then need more than
    `feed.memory_limit`; an evaluation's goes without the cache that does not fit.
    """
    sizes = _Sizes.of(manifest, split, config, evaluation=evaluation)
    limit = config.memory_limit.size_bytes
    fill_calls = max(1, min(host.num_cores, limit // 8 // sizes.fill))
    filling: dict[Cache, int] = {
        "decoded": fill_calls * sizes.fill,
        "disk": fill_calls * sizes.fill,
        "memory": sizes.read,
        "none": 0,
    }
    cache, cache_reason = _choose_cache(sizes, config, host, filling, evaluation=evaluation)
    kept = {"decoded": sizes.decoded, "disk": sizes.decoded, "memory": sizes.stored, "none": 0}[cache]
    # A cache hands over rows by their number, so that a window holds no more than those.
    held = (0 if cache == "disk" else kept) + (sizes.window if cache == "none" else sizes.rows)
    work = sizes.copy if cache in ("decoded", "disk") else sizes.work
    calls, calls_reason = _choose_calls(work, config, host, cache, (limit - held) // 2)
    ahead, ahead_reason = _choose_prefetch(sizes, config, limit - held - calls * work)
    memory_bytes = held + max(filling[cache], calls * work + (ahead + HELD_BATCHES) * sizes.batch)
    if memory_bytes > limit and not evaluation:
        raise ConfigError(_too_much(sizes, config, cache, kept, memory_bytes))
    return FeedPlan(cache, ahead, calls, fill_calls, kept, memory_bytes, (cache_reason, calls_reason, ahead_reason))


def fill_batch_size(example_bytes: int) -> int:
    """Returns how many examples of that size are decoded at once to fill a cache."""
    return max(1, min(4096, FILL_BATCH_BYTES // max(1, example_bytes)))


@dataclass(frozen=True)
class _Sizes:
    """In bytes, if not said otherwise."""

    num_examples: int
    example: int
    """Of one, as it lies in the shards."""
    stored: int
    """Of the split in memory as it is stored."""
    decoded: int
    """Of the split as a model sees it, with label and id."""
    batch: int
    """Of a global batch as a model sees it."""
    work: int
    """Of a global batch while it is decoded: what goes in, what comes out, the images in between at full size, and what
    changing them takes."""
    copy: int
    """Of a global batch while its decoded rows are copied and changed."""
    read: int
    """Of a small batch of records that is read to fill a cache."""
    fill: int
    """Of a small batch that is decoded to fill one."""
    window: int
    """Of windows of examples as they lie in the shards, at most."""
    window_rows: int
    """Of windows of row numbers."""
    rows: int
    """Of these, and of the numbers of an epoch's rows."""
    has_images: bool
    decodes_windows: bool
    """Whether of an image other pixels are decoded in every epoch."""

    @classmethod
    def of(cls, manifest: ShardManifest, split: str, config: FeedConfig, *, evaluation: bool) -> "_Sizes":
        count = manifest.splits[split].num_examples
        example = math.ceil(sum(shard.record_bytes for shard in manifest.splits[split].shards) / count)
        keys = (manifest.target, manifest.id)
        key_bytes = num_bytes((stored_shape(manifest.features[key]), manifest.features[key].dtype) for key in keys)
        decoded = num_bytes(decoded_signature(manifest, config).values()) + key_bytes
        image, changed = _image_bytes(manifest), config.global_batch_size * _augment_bytes(manifest, config)
        window = min(config.block if evaluation else config.window, count) * WINDOW_COPIES
        return cls(
            num_examples=count,
            example=example,
            stored=count * (example + RECORD_BYTES),
            decoded=count * decoded,
            batch=config.global_batch_size * decoded,
            work=config.global_batch_size * (example + decoded)
            + image * min(PARALLEL_IMAGES, config.global_batch_size)
            + changed,
            copy=config.global_batch_size * 2 * decoded + changed,
            read=FILL_COPIES * max(FILL_BATCH_BYTES, example),
            fill=FILL_COPIES * max(FILL_BATCH_BYTES, example, decoded)
            + image * min(PARALLEL_IMAGES, fill_batch_size(max(example, decoded))),
            window=window * example,
            window_rows=window * ROW_BYTES,
            rows=(count + window) * ROW_BYTES,
            has_images=any(manifest.features[name].kind == "image" for name in feature_names(manifest)),
            decodes_windows=decodes_windows(manifest, config),
        )


def _image_bytes(manifest: ShardManifest) -> int:
    """Returns the mean size in bytes of the images of an example at full size."""
    sizes = 0.0
    for name in manifest.inputs:
        height, width = (manifest.statistics.get(f"{name}.{side}") for side in ("height", "width"))
        if manifest.features[name].kind == "image" and height is not None and width is not None:
            sizes += (height.mean or 0) * (width.mean or 0) * channels(manifest.features[name])
    return math.ceil(sizes)


def _augment_bytes(manifest: ShardManifest, config: FeedConfig) -> int:
    """Returns the size in bytes of the copies of an example's image that are held while it is changed."""
    changes = config.augment[1:] if decodes_windows(manifest, config) else config.augment
    if not changes:
        return 0
    shape, dtype = decoded_signature(manifest, config)[augmented_input(manifest, config)]
    in_floats = any(isinstance(change, RandomResizedCrop | Color | Mixup) for change in changes)
    width = max(FLOAT_BYTES, np.dtype(dtype).itemsize) if in_floats else np.dtype(dtype).itemsize
    return AUGMENT_COPIES * math.prod(shape) * width


def _choose_cache(
    sizes: _Sizes, config: FeedConfig, host: HostFacts, filling: Mapping[Cache, int], *, evaluation: bool
) -> tuple[Cache, str]:
    room, limit = _room(sizes, config, host)
    if config.service is not None:
        return "none", "cache none: the hosts of feed.service read the shards"
    if config.cache != "auto":
        return _asked_for(config.cache, sizes, room if evaluation else None)
    return _quickest_that_fits(sizes, host, filling, room, limit, evaluation=evaluation)


def _room(sizes: _Sizes, config: FeedConfig, host: HostFacts) -> tuple[int, str]:
    """Returns the memory in bytes that a cache may take, and what that is: a half, or less where batches need more."""
    limit = config.memory_limit.size_bytes
    calls = 1 if config.parallel_calls == "auto" else config.parallel_calls
    ahead = 1 if config.prefetch_batches == "auto" else config.prefetch_batches
    left = limit - sizes.rows - calls * max(sizes.work, sizes.copy) - (ahead + HELD_BATCHES) * sizes.batch
    half = min(limit, host.memory_bytes) // 2
    if left < half:
        return max(0, left), "what batches leave of feed.memory_limit"
    return half, f"half of {'feed.memory_limit' if host.memory_bytes >= limit else 'the memory here'}"


def _asked_for(cache: Cache, sizes: _Sizes, room: int | None) -> tuple[Cache, str]:
    """Returns a cache that is set by hand; none, if there is a `room` that it does not fit into."""
    if sizes.decodes_windows and cache in ("decoded", "disk"):
        raise ConfigError(
            f"feed.cache={cache}: keeps what was decoded, and feed.augment begins with random_resized_crop, which "
            "decodes another window of each image in every epoch; take feed.cache=memory, or auto"
        )
    size = {"decoded": sizes.decoded, "memory": sizes.stored}.get(cache, 0)
    if room is not None and size > room:
        return "none", f"cache none, because {cache} of {_size(size)} is over the {_size(room)} for a cache"
    return cache, f"cache {cache}, as asked for"


def _quickest_that_fits(
    sizes: _Sizes, host: HostFacts, filling: Mapping[Cache, int], room: int, limit: str, *, evaluation: bool
) -> tuple[Cache, str]:
    if filling["memory"] > room:
        return "none", f"cache none: to fill one takes {_size(filling['memory'])}, over the {_size(room)} for a cache"
    not_ahead = None  # why nothing is decoded ahead
    if evaluation:
        not_ahead = "one pass gains nothing from decoding ahead"
    elif sizes.decodes_windows:
        not_ahead = "every epoch decodes other windows"
    elif filling["decoded"] > room:
        not_ahead = f"to decode ahead takes {_size(filling['decoded'])}"
    if sizes.decoded <= room and not_ahead is None:
        return "decoded", f"cache decoded: {_size(sizes.decoded)} are within {limit}"
    page_cache = min(host.memory_bytes, host.free_disk_bytes) // 2
    if sizes.has_images and host.medium == "local" and sizes.decoded <= page_cache and not_ahead is None:
        return "disk", (
            f"cache disk: {_size(sizes.decoded)} decoded are over {limit}, but within half of the local disk's free "
            "room and of the memory that can hold its pages"
        )
    if sizes.stored <= room:
        what = not_ahead or f"{_size(sizes.decoded)} decoded are not"
        return "memory", f"cache memory: {_size(sizes.stored)} as stored are within {limit}, {what}"
    return (
        "none",
        f"cache none: {_size(sizes.stored if not_ahead else min(sizes.stored, sizes.decoded))} are over {limit}",
    )


def _choose_calls(work: int, config: FeedConfig, host: HostFacts, cache: Cache, room: int) -> tuple[int, str]:
    if config.parallel_calls != "auto":
        return config.parallel_calls, f"{config.parallel_calls} batches decoded at once, as asked for"
    if cache in ("decoded", "disk") and not config.augment:
        # To copy rows on more than one thread costs half as much again, and gains little.
        return 1, "1 batch at once: its rows are only copied"
    fitting = max(1, room // work)
    if fitting < host.num_cores:
        return fitting, f"{fitting} batches decoded at once: more of {_size(work)} would be over feed.memory_limit"
    return host.num_cores, f"{host.num_cores} batches decoded at once: one a core"


def _choose_prefetch(sizes: _Sizes, config: FeedConfig, room: int) -> tuple[int, str]:
    if config.prefetch_batches != "auto":
        return config.prefetch_batches, f"{config.prefetch_batches} batches ahead, as asked for"
    fitting = max(1, room // sizes.batch - HELD_BATCHES)
    if fitting < PREFETCH_BATCHES:
        return fitting, f"{fitting} batches ahead: more of {_size(sizes.batch)} would be over feed.memory_limit"
    return PREFETCH_BATCHES, f"{PREFETCH_BATCHES} batches ahead: enough to level out a slow step of the feed"


def _too_much(sizes: _Sizes, config: FeedConfig, cache: Cache, kept: int, needed: int) -> str:
    limit = config.memory_limit
    over = f"{_size(needed)} of memory are needed, over feed.memory_limit={limit}"
    if cache in ("decoded", "memory"):
        return (
            f"feed.cache={cache}: its {_size(kept)} with window and batches: {over}; take feed.cache=auto or raise it"
        )
    batches = needed - (sizes.window if cache == "none" else sizes.window_rows)
    example = (sizes.example if cache == "none" else ROW_BYTES) * WINDOW_COPIES
    fits = (limit.size_bytes - batches) // example
    fix = f"use at most feed.window={fits}" if fits > 0 else "use a smaller feed.global_batch_size"
    return (
        f"feed.window={config.window} examples of {sizes.example / 1e3:.1f} KB and batches of "
        f"{config.global_batch_size}: {over}; {fix}, or raise the limit"
    )


def _size(num_bytes: int) -> str:
    """Returns a size as people write it: 12 B, 1.4 KB, 2.1 GB."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} B"
