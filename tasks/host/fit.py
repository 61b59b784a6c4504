"""Fit: whether a config suits the machine: replicas, global batch, window and cache against the memory."""

from collections.abc import Iterator
from pathlib import Path

from tasks.config import Config, Mirrored
from tasks.errors import ConfigError, DataError
from tasks.host.finding import Finding
from tasks.prepare.directory import VERSION
from tasks.prepare.manifest import MANIFEST, ShardManifest
from tasks.workers.devices import num_replicas

_LARGEST_PADDING = 0.1  # of a global batch


def fit_findings(config: Config, workspace: Path, *, num_gpus: int, limit_bytes: int) -> Iterator[Finding]:
    """Yields what is to be said of a config on a machine with so many GPUs and so much memory for all processes."""
    replicas: int | None = 1
    if isinstance(config.distribute, Mirrored):
        try:
            replicas = num_replicas(config.distribute.num_replicas, num_gpus=num_gpus)
        except ConfigError as error:
            replicas = None
            yield Finding(name="replicas", status="problem", found=str(error), fix="distribute.num_replicas=auto")
    if replicas is not None:
        yield _batch(config.feed.global_batch_size, replicas)
    manifest = _manifest(config, workspace)
    if manifest is None:
        yield Finding(
            name="memory plan", status="ok", found="not known before the shards are there: `millstream prepare`"
        )
    else:
        yield from _memory_plan(config, manifest, limit_bytes)


def _batch(batch: int, replicas: int) -> Finding:
    rows = -(-batch // replicas)
    padding = rows * replicas / batch - 1
    found = f"global batch of {batch} on {replicas} replica(s): {rows} each"
    if padding <= _LARGEST_PADDING:
        return Finding(name="replicas", status="ok", found=found)
    return Finding(
        name="replicas",
        status="warning",
        found=f"{found}, of which {padding / (1 + padding):.0%} is padding that is computed for nothing",
        fix=f"feed.global_batch_size={rows * replicas}, which is another training, or fewer replicas",
    )


def _memory_plan(config: Config, manifest: ShardManifest, limit_bytes: int) -> Iterator[Finding]:
    """Yields what `tasks.feed` will keep in memory of the training split, from the sizes in the manifest."""
    feed, split = config.feed, manifest.splits["train"]
    split_bytes = sum(shard.record_bytes for shard in split.shards)
    example_bytes = split_bytes / split.num_examples
    window_bytes = min(feed.window, split.num_examples) * example_bytes
    asked = feed.memory_limit.size_bytes
    cached = feed.cache == "memory" or (feed.cache == "auto" and split_bytes <= asked / 2)
    kept = max(window_bytes, split_bytes if cached else 0)
    found = (
        f"train: {split.num_examples} examples of {example_bytes / 1e3:.1f} KB; window {window_bytes / 1e9:.2f} GB, "
        f"{f'all of it cached, {split_bytes / 1e9:.2f} GB' if cached else 'read again each epoch'}"
    )
    if window_bytes > asked:
        fits = int(asked / example_bytes)
        fix = f"feed.window={fits} or less, or raise feed.memory_limit={feed.memory_limit}"
        yield Finding(name="memory plan", status="problem", found=found, fix=fix)
    elif kept > limit_bytes / 2:
        fix = "feed.cache=none" if cached and window_bytes <= limit_bytes / 2 else "a smaller feed.window"
        yield Finding(
            name="memory plan",
            status="warning",
            found=f"{found}: over half of the {limit_bytes / 1e9:.1f} GB that all processes may take",
            fix=fix,
        )
    else:
        yield Finding(name="memory plan", status="ok", found=found)


def _manifest(config: Config, workspace: Path) -> ShardManifest | None:
    """Returns the newest manifest of shards of this config, without reading its source."""
    files = (workspace / "data").glob(f"*/{config.name}/{VERSION}/{MANIFEST}")
    for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            manifest = ShardManifest.read(file)
        except DataError:  # damaged, or of another release: `millstream prepare` will say so
            continue
        if manifest.config == config.data.identity():
            return manifest
    return None
