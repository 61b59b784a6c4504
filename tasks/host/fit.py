"""Fit: whether a config suits the machine: replicas, global batch, window and cache against the memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tasks.config import Config
from tasks.distribution import Mirrored, MultiWorkerMirrored
from tasks.errors import ConfigError, DataError
from tasks.feed.host_facts import HostFacts, host_facts
from tasks.feed.plan import plan_feed
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
    if isinstance(config.distribute, MultiWorkerMirrored):
        replicas = max(num_gpus, config.distribute.num_workers)
    if replicas is not None:
        yield _batch(config.feed.global_batch_size, replicas)
    found = _find_manifest(config, workspace)
    if found is None:
        yield Finding(
            name="memory plan", status="ok", found="not known before the shards are there: `millstream prepare`"
        )
    else:
        directory, manifest = found
        yield _memory_plan(config, manifest, replace(host_facts(directory), memory_bytes=limit_bytes))


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


def _memory_plan(config: Config, manifest: ShardManifest, host: HostFacts) -> Finding:
    """Returns what `tasks.feed` will keep in memory of the training split, from the sizes in the manifest."""
    try:
        plan = plan_feed(manifest, "train", config.feed, host)
    except ConfigError as error:
        found, _, fix = str(error).partition("; ")
        return Finding(name="memory plan", status="problem", found=found, fix=fix)
    if plan.memory_bytes <= host.memory_bytes / 2:
        return Finding(name="memory plan", status="ok", found=plan.line())
    by_hand = config.feed.cache in ("decoded", "memory")
    return Finding(
        name="memory plan",
        status="warning",
        found=f"{plan.line()}: over half of the {host.memory_bytes / 1e9:.1f} GB that all processes may take",
        fix="feed.cache=auto" if by_hand else "a smaller feed.window or feed.global_batch_size",
    )


def _find_manifest(config: Config, workspace: Path) -> tuple[Path, ShardManifest] | None:
    """Returns the newest shards of this config and their manifest, without reading its source."""
    files = (workspace / "data").glob(f"*/{config.name}/{VERSION}/{MANIFEST}")
    for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            manifest = ShardManifest.read(file)
        except DataError:  # damaged, or of another release: `millstream prepare` will say so
            continue
        if manifest.config == config.data.identity():
            return file.parent, manifest
    return None
