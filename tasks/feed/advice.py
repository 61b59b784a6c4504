"""Advice: which stage limits a feed and what to change first, in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tasks.config import FeedConfig
from tasks.feed.plan import Cache
from tasks.prepare.manifest import ShardManifest

Stage = Literal["read", "parse", "decode", "batch"]
"""read: records from the shards; parse: records to features; decode: features to a model's inputs; batch: the rest,
that is mixing, batching, slicing and handing over."""

ACCEPTED_WAIT = 0.05  # share of the step time: less is not worth a change
LARGE_PIXELS = 2.0  # times the pixels that the model sees: from there on most of what is decoded is thrown away


@dataclass(frozen=True)
class FeedFacts:
    """What the advice needs to know of a feed and its host."""

    images: bool
    """Whether there are encoded images, which are decoded in every epoch."""
    large: bool
    """Whether they have far more pixels than the model sees."""
    short_side: int | None
    """Pixels of a shorter side that covers `feed.image_size`, if the source can resize when it shards."""
    cached: bool
    """Whether the split is kept, in memory or on disk."""
    compressed: bool
    """Whether the shards are."""
    size_bytes: int
    """Of the split's records."""
    cores: int
    """That this process may use."""
    changes: bool = False
    """Whether images are changed at random, which is done in every epoch, cached or not."""


def feed_facts(manifest: ShardManifest, config: FeedConfig, *, cache: Cache, cores: int) -> FeedFacts:
    """Returns the facts of the feed of the training split."""
    images = [name for name in manifest.inputs if manifest.features[name].kind == "image"]
    source = manifest.config.get("source")
    resizes = isinstance(source, dict) and source.get("kind") == "image_folder"
    return FeedFacts(
        images=bool(images) and cache in ("memory", "none"),
        large=any(_pixels(manifest, name) > LARGE_PIXELS * _seen_pixels(config) for name in images),
        short_side=max(config.image_size) if resizes and config.image_size else None,
        cached=cache != "none",
        compressed=manifest.compression != "none",
        size_bytes=sum(shard.record_bytes for shard in manifest.splits["train"].shards),
        cores=cores,
        changes=bool(config.augment),
    )


def advise_on_stages(cpu_seconds: Mapping[Stage, float], facts: FeedFacts) -> str:
    """Returns the sentence for a feed whose stages took so many CPU-seconds each, over the same examples."""
    stage = max(cpu_seconds, key=lambda name: cpu_seconds[name])
    share = cpu_seconds[stage] / sum(cpu_seconds.values())
    return f"{stage} takes {share:.0%} of the feed's CPU time: {_remedy(stage, facts)}"


def advise_on_wait(wait_fraction: float, facts: FeedFacts) -> str | None:
    """Returns the sentence for a training that waited for input this share (0..1) of its step time, None if that is ok.

    Which stage it is was not measured: it is the one that costs most in a feed of this kind.
    """
    if wait_fraction <= ACCEPTED_WAIT:
        return None
    stage = _likely_limit(facts)
    cores = "1 core" if facts.cores == 1 else f"{facts.cores} cores"
    return (
        f"{wait_fraction:.0%} of the step time is a wait for input, most likely for the stage {stage} on {cores}: "
        f"{_remedy(stage, facts)}"
    )


def _likely_limit(facts: FeedFacts) -> Stage:
    if facts.images or facts.changes:  # the stage that changes too
        return "decode"  # a hundred times the cost of reading and parsing the same bytes
    return "batch" if facts.cached else "read"


def _remedy(stage: Stage, facts: FeedFacts) -> str:
    match stage:
        case "decode" if facts.images:
            return _remedy_of_decoding(facts)
        case "decode" if facts.changes:
            return "add cores, or take less of feed.augment, which is another training"
        case "read" if facts.compressed:
            return "write the shards without compression (data.compression=none)"
        case "read" | "parse" | "batch" if not facts.cached:  # picking rows spares the copies of mixing too
            size = f"{facts.size_bytes / 1e9:.1f} GB" if facts.size_bytes >= 1e8 else f"{facts.size_bytes / 1e6:.1f} MB"
            return f"keep the split in memory (feed.cache=memory, about {size}), or add cores"
        case "batch":
            return (
                "handing a batch over takes long beside a step, so take a larger feed.global_batch_size, which is "
                "another training, or leave more cores to the feed"
            )
        case _:
            return "add cores"


def _remedy_of_decoding(facts: FeedFacts) -> str:
    if not facts.large:
        return "add cores"
    if facts.short_side is None:
        return "have the images resized to about feed.image_size before they are sharded"
    return (
        "resize the images once, when they are sharded "
        f"(data.source.store=jpeg data.source.short_side={facts.short_side})"
    )


def _pixels(manifest: ShardManifest, image: str) -> float:
    """Returns the pixels of an image of mean width and mean height."""
    sides = (manifest.statistics.get(f"{image}.{side}") for side in ("width", "height"))
    width, height = ((side.mean or 0.0) if side is not None else 0.0 for side in sides)
    return width * height


def _seen_pixels(config: FeedConfig) -> float:
    assert config.image_size is not None
    height, width = config.image_size
    return height * width
