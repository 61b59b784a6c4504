"""The shard directory: planned as a whole, written shard by shard."""

import importlib.metadata
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.config import DataConfig, FeedConfig
from tasks.files import COMPLETED, atomic_directory, atomic_file, damages, read_receipts, write_atomic
from tasks.prepare.manifest import (
    MANIFEST,
    OFFSET_STRIDE,
    QUARANTINE,
    FeatureStatistics,
    Shard,
    ShardManifest,
    SplitManifest,
)
from tasks.prepare.plan import plan_order, plan_shards
from tasks.prepare.scan import KEYS, SCALARS, Scan
from tasks.prepare.source import ID, LABEL
from tasks.prepare.split import assign_splits
from tasks.prepare.statistics import summarize
from tasks.prepare.targets import class_counts
from tasks.prepare.tfds import shard_file, tfds_metadata
from tasks.prepare.threads import in_order, num_workers
from tasks.prepare.writer import write_shard
from tasks.progress import progress

FINISHED = "finished"  # what the manifest will say of each shard that is written
VERSION = "1.0.0"  # TFDS wants one in the path; what the shards hold is named by the digest above it

logger = logging.getLogger("millstream")


@dataclass(frozen=True)
class DirectoryPlan:
    """All that the bytes of a shard directory follow from: the scanned examples, and which of them each file holds."""

    name: str
    data_digest: str
    source_digest: str
    config: DataConfig
    scan: Scan
    splits: dict[str, dict[str, NDArray[np.int64]]]
    """For each split the rows of each of its files, both in order."""
    notes: tuple[str, ...]


def plan_directory(name: str, config: DataConfig, scan: Scan, *, data_digest: str, source_digest: str) -> DirectoryPlan:
    """Returns the plan of a config's shards; writes nothing.

    Raises DataError if a split would be empty or train lack a class, ConfigError if data.splits or data.num_shards do
    not fit the source.
    """
    split_of, notes = assign_splits(
        config.splits,
        labels=scan.labels,
        hashes=scan.hashes[:, 0],
        split_by=scan.split_by,
        label_map=scan.schema.label_map,
        seed=config.seed,
    )
    order = plan_order(split_of, scan.hashes[:, 1])
    return DirectoryPlan(
        name=name,
        data_digest=data_digest,
        source_digest=source_digest,
        config=config,
        scan=scan,
        splits={split: _plan_files(name, config, scan, split, rows) for split, rows in order.items()},
        notes=(*scan.notes, *notes),
    )


def write_directory(directory: Path, plan: DirectoryPlan) -> None:
    """Writes all of a shard directory; it has its name only once it is complete."""
    statistics = _statistics(plan)  # first, because it may refuse
    notes = (*plan.notes, *_vocabulary_notes(statistics))
    for note in notes:
        logger.info("prepare: %s", note)
    if plan.scan.num_bad:
        logger.warning("prepare: %d examples left out; %s says why", plan.scan.num_bad, directory / QUARANTINE)
    digests: dict[str, str] = {}
    with atomic_directory(directory, digests=digests, go_on=True) as incomplete:
        shards = _write_shards(incomplete, plan)
        manifest = ShardManifest(
            name=plan.name,
            version=VERSION,
            data_digest=plan.data_digest,
            source_digest=plan.source_digest,
            seed=plan.config.seed,
            offset_stride=OFFSET_STRIDE,
            compression=plan.config.compression,
            inputs=plan.scan.schema.inputs,
            target=LABEL,
            id=ID,
            features=plan.scan.features,
            label_map=plan.scan.schema.label_map,
            splits={split: _split_manifest(plan, split, shards) for split in plan.splits},
            statistics=statistics,
            config=plan.config.identity(),
            num_bad=plan.scan.num_bad,
            notes=notes,
            code_version=_code_version(),
        )
        manifest.write(incomplete / MANIFEST)
        for file, text in tfds_metadata(manifest).items():
            (incomplete / file).write_text(text, encoding="utf-8")
        for file in (KEYS, QUARANTINE) if plan.scan.num_bad else (KEYS,):
            shutil.copyfile(plan.scan.folder / file, incomplete / file)
        digests |= {shard.file: shard.sha256 for split in manifest.splits.values() for shard in split.shards}


def find_damages(directory: Path) -> dict[str, str]:
    """Returns what is wrong with each file of a complete directory that is not as it was written, or not of it at all.

    Raises DataError if the directory is not complete.
    """
    known = {COMPLETED, *read_receipts(directory)}
    foreign = {entry.name for entry in directory.iterdir()} - known
    return dict(damages(directory)) | dict.fromkeys(sorted(foreign), "does not belong here")


def repair_directory(directory: Path, plan: DirectoryPlan, damaged: Mapping[str, str]) -> None:
    """Makes the damaged files of a complete directory what they were, and removes the foreign; touches no other.

    The whole directory is written again if it is not known what they were.
    """
    for name in damaged:
        _remove(directory / name)
    if MANIFEST not in damaged:
        files = {file: rows for split in plan.splits.values() for file, rows in split.items()}
        metadata = tfds_metadata(ShardManifest.read(directory / MANIFEST))
        for name in damaged:
            if name in files:
                with atomic_file(directory / name) as beside:
                    write_shard(beside, plan.scan.spool.frames(files[name]), compression=plan.config.compression)
            elif name in metadata:
                write_atomic(directory / name, metadata[name].encode())
            elif name in {KEYS, QUARANTINE}:
                write_atomic(directory / name, (plan.scan.folder / name).read_bytes())
        if not find_damages(directory):
            return
    logger.warning("prepare: %s cannot be mended file by file; writing all of it again", directory)
    write_directory(directory, plan)


def _plan_files(
    name: str, config: DataConfig, scan: Scan, split: str, rows: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    shards = plan_shards(
        len(rows),
        size_bytes=int(scan.spool.places.sizes[rows].sum()),
        target_bytes=config.shard_size.size_bytes,
        num_shards=config.num_shards if split == "train" else None,
        multiple=config.shard_multiple,
    )
    return {shard_file(name, split, shard.index, shard.num_shards): rows[shard.start : shard.stop] for shard in shards}


def _write_shards(directory: Path, plan: DirectoryPlan) -> dict[str, Shard]:
    """Writes the shards that an earlier try from the same scan did not finish, and returns all by their names."""
    finished = plan.scan.folder / FINISHED
    finished.mkdir(exist_ok=True)
    files = {file: rows for split in plan.splits.values() for file, rows in split.items()}
    for entry in directory.iterdir():
        if not (finished / f"{entry.name}.json").is_file():
            _remove(entry)

    def write(file: str) -> Shard:
        receipt = finished / f"{file}.json"
        if receipt.is_file() and (directory / file).is_file():
            return Shard.read(receipt)
        shard = write_shard(directory / file, plan.scan.spool.frames(files[file]), compression=plan.config.compression)
        shard.write(receipt)
        return shard

    total_bytes, done_bytes = int(plan.scan.spool.places.sizes.sum()), 0
    shards: dict[str, Shard] = {}
    with progress("writing shards") as advance:
        for shard in in_order(write, files, num_threads=num_workers(plan.config)):
            shards[shard.file] = shard
            done_bytes += shard.record_bytes
            advance(done_bytes, total_bytes)
    return shards


def _split_manifest(plan: DirectoryPlan, split: str, shards: Mapping[str, Shard]) -> SplitManifest:
    files = plan.splits[split]
    rows = np.concatenate(list(files.values()))
    logger.info("prepare: %s, %d examples in %d shard(s)", split, len(rows), len(files))
    return SplitManifest(
        num_examples=len(rows),
        class_counts=class_counts(plan.scan.labels[rows], plan.scan.schema.label_map),
        shards=tuple(shards[file] for file in files),
    )


def _statistics(plan: DirectoryPlan) -> dict[str, FeatureStatistics]:
    in_train = np.zeros(len(plan.scan.labels), bool)
    for rows in plan.splits["train"].values():
        in_train[rows] = True
    return summarize(plan.scan.folder / SCALARS, in_train, plan.scan.features, tokens=plan.config.text)


def _vocabulary_notes(statistics: Mapping[str, FeatureStatistics]) -> Iterator[str]:
    """Yields a note on each feature with more categories or words than a model tells apart by default."""
    most = FeedConfig().max_categories
    for name, found in statistics.items():
        counts = [count for _, count in found.vocabulary or ()]
        if found.num_left_out:
            assert found.num_tokens is not None
            yield (
                f"{name}: has {len(counts) + found.num_left_out} different tokens, of which the {len(counts)} most "
                f"frequent are kept; all others, {1 - sum(counts) / found.num_tokens:.1%} of train, are one to a model"
            )
        elif found.num_tokens is None and len(counts) > most:
            yield (
                f"{name}: has {len(counts)} different values, of which a model tells the {most} most frequent apart "
                f"unless feed.max_categories says otherwise; all others, {sum(counts[most:]) / sum(counts):.1%} of "
                "train, are one to it"
            )


def _code_version() -> str:
    try:
        return importlib.metadata.version("millstream")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
