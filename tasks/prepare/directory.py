"""The shard directory: planned as a whole, written shard by shard."""

import importlib.metadata
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.config import DataConfig, FeedConfig
from tasks.files import COMPLETED, atomic_directory, atomic_file, damages, read_receipts, write_atomic
from tasks.prepare.base import FILES, GROUPS, TRAIN_SCALARS, Arrival, Base, join_parquet, write_files, write_groups
from tasks.prepare.manifest import (
    MANIFEST,
    OFFSET_STRIDE,
    QUARANTINE,
    FeatureStatistics,
    Generation,
    Shard,
    ShardManifest,
    SplitManifest,
)
from tasks.prepare.plan import plan_order, plan_shards
from tasks.prepare.scan import KEYS, SCALARS, Scan
from tasks.prepare.source import ID, LABEL
from tasks.prepare.split import assign_splits
from tasks.prepare.statistics import copy_chosen, summarize
from tasks.prepare.targets import class_counts
from tasks.prepare.tfds import shard_file, tfds_metadata
from tasks.prepare.threads import in_order, num_workers
from tasks.prepare.writer import write_shard
from tasks.progress import progress
from tasks.splits import GroupSplits

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
    """For each split the rows of each of its files, both in order; of new files alone."""
    notes: tuple[str, ...]
    arrival: Arrival | None = None
    """With data.append what the scanned examples are appended to."""
    groups: Mapping[str, int] | None = None
    """The split of each group that an appended one will have to know; None: it needs none."""

    @property
    def base(self) -> Base | None:
        return None if self.arrival is None else self.arrival.base

    def kept(self, split: str) -> dict[str, Shard]:
        """Returns the shards of the base by the names that they get here, where there are more of them; in order."""
        if self.base is None:
            return {}
        there = self.base.manifest.splits[split].shards
        num_shards = len(there) + len(self.splits[split])
        return {shard_file(self.name, split, index, num_shards): shard for index, shard in enumerate(there)}


def plan_directory(
    name: str,
    config: DataConfig,
    scan: Scan,
    *,
    data_digest: str,
    source_digest: str,
    arrival: Arrival | None = None,
) -> DirectoryPlan:
    """Returns the plan of a config's shards; writes nothing. With `arrival` the scan is of its new files alone.

    Raises DataError if a split would be empty or train lack a class, ConfigError if data.splits or data.num_shards do
    not fit the source.
    """
    base = None if arrival is None else arrival.base
    held = None if base is None else base.held()
    split_of, notes = assign_splits(
        config.splits,
        labels=scan.labels,
        hashes=scan.hashes[:, 0],
        split_by=scan.split_by,
        label_map=scan.schema.label_map,
        seed=config.seed,
        held=held,
    )
    groups: dict[str, int] | None = None
    if arrival is not None and isinstance(config.splits, GroupSplits):
        groups = {**(held.groups if held else {}), **dict(zip(scan.split_by or (), split_of.tolist(), strict=True))}
    order = plan_order(split_of, scan.hashes[:, 1])
    num_kept = {split: 0 if base is None else len(base.manifest.splits[split].shards) for split in order}
    return DirectoryPlan(
        name=name,
        data_digest=data_digest,
        source_digest=source_digest,
        config=config,
        scan=scan,
        splits={
            split: _plan_files(name, config, scan, split=split, rows=rows, num_kept=num_kept[split])
            for split, rows in order.items()
        },
        notes=(*scan.notes, *notes),
        arrival=arrival,
        groups=groups,
    )


def write_directory(directory: Path, plan: DirectoryPlan) -> None:
    """Writes all of a shard directory; it has its name only once it is complete."""
    statistics = _statistics(plan)  # first, because it may refuse
    notes = (*plan.notes, *_vocabulary_notes(statistics))
    for note in notes:
        logger.info("prepare: %s", note)
    base = plan.base
    if base is not None:
        logger.info(
            "prepare: %d new examples beside the %d of %s", len(plan.scan.labels), base.num_examples, base.directory
        )
        notes = tuple(dict.fromkeys((*base.manifest.notes, *notes)))
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
            inputs=plan.scan.schema.inputs if base is None else base.manifest.inputs,  # new files may order them anew
            target=LABEL,
            id=ID,
            features=plan.scan.features,
            label_map=plan.scan.schema.label_map,
            splits={split: _split_manifest(plan, split, shards) for split in plan.splits},
            statistics=statistics,
            config=plan.config.identity(),
            num_bad=plan.scan.num_bad + (base.manifest.num_bad if base is not None else 0),
            notes=notes,
            code_version=_code_version(),
            meanings=plan.scan.schema.meanings,
            generations=_generations(plan),
        )
        manifest.write(incomplete / MANIFEST)
        for file, text in tfds_metadata(manifest).items():
            (incomplete / file).write_text(text, encoding="utf-8")
        _write_keys(incomplete, plan)
        if plan.arrival is not None:
            _write_for_the_next(incomplete, plan, plan.arrival)
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
        kept = {file: shard.file for split in plan.splits for file, shard in plan.kept(split).items()}
        for name in damaged:
            if plan.base is not None and name in kept:
                _link(plan.base.directory / kept[name], directory / name)
            elif name in files:
                with atomic_file(directory / name) as beside:
                    write_shard(beside, plan.scan.spool.frames(files[name]), compression=plan.config.compression)
            elif name in metadata:
                write_atomic(directory / name, metadata[name].encode())
            elif name in {KEYS, QUARANTINE} and plan.base is None:
                write_atomic(directory / name, (plan.scan.folder / name).read_bytes())
        if not find_damages(directory):
            return
    logger.warning("prepare: %s cannot be mended file by file; writing all of it again", directory)
    write_directory(directory, plan)


def _plan_files(
    name: str, config: DataConfig, scan: Scan, *, split: str, rows: NDArray[np.int64], num_kept: int
) -> dict[str, NDArray[np.int64]]:
    shards = plan_shards(
        len(rows),
        size_bytes=int(scan.spool.places.sizes[rows].sum()),
        target_bytes=config.shard_size.size_bytes,
        num_shards=config.num_shards if split == "train" else None,
        multiple=config.shard_multiple,
    )
    return {
        shard_file(name, split, num_kept + shard.index, num_kept + shard.num_shards): rows[shard.start : shard.stop]
        for shard in shards
    }


def _write_shards(directory: Path, plan: DirectoryPlan) -> dict[str, Shard]:
    """Writes the shards that an earlier try from the same scan did not finish, and returns all by their names.

    Those of the base are linked, not written.
    """
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
    for split in plan.splits:
        for file, shard in plan.kept(split).items():
            assert plan.base is not None
            _link(plan.base.directory / shard.file, directory / file)
            shards[file] = shard.model_copy(update={"file": file})
    return shards


def _split_manifest(plan: DirectoryPlan, split: str, shards: Mapping[str, Shard]) -> SplitManifest:
    files = plan.splits[split]
    rows = np.concatenate([np.zeros(0, np.int64), *files.values()])
    num_examples = len(rows)
    counts = class_counts(plan.scan.labels[rows], plan.scan.schema.label_map)
    if plan.base is not None:
        there = plan.base.manifest.splits[split]
        num_examples += there.num_examples
        counts = tuple(map(sum, zip(there.class_counts, counts, strict=False)))  # numbers have none
    logger.info("prepare: %s, %d examples in %d shard(s)", split, num_examples, len(plan.kept(split)) + len(files))
    return SplitManifest(
        num_examples=num_examples,
        class_counts=counts,
        shards=tuple(shards[file] for file in (*plan.kept(split), *files)),
    )


def _generations(plan: DirectoryPlan) -> tuple[Generation, ...]:
    """Returns the generations of the base and the one that is written; none without data.append."""
    if plan.arrival is None:
        return ()
    before = plan.base.generations if plan.base is not None else ()
    return (
        *before,
        Generation(
            number=len(before) + 1,
            source_digest=plan.source_digest,
            num_rows=len(plan.scan.labels) + plan.scan.num_bad,
            num_examples={split: sum(map(len, files.values())) for split, files in plan.splits.items()},
            num_shards={split: len(files) for split, files in plan.splits.items()},
        ),
    )


def _statistics(plan: DirectoryPlan) -> dict[str, FeatureStatistics]:
    """Returns the statistics over the whole training split, that of the base included.

    Of each generation the numbers, categories and texts of its training examples are kept, so that they are exact.
    """
    before = plan.base.train_scalars() if plan.base is not None else {}
    return summarize(
        {**before, plan.scan.folder / SCALARS: _in_train(plan)}, plan.scan.features, tokens=plan.config.text
    )


def _in_train(plan: DirectoryPlan) -> NDArray[np.bool_]:
    in_train = np.zeros(len(plan.scan.labels), bool)
    for rows in plan.splits["train"].values():
        in_train[rows] = True
    return in_train


def _write_keys(directory: Path, plan: DirectoryPlan) -> None:
    """Writes the keys of all examples, and what is wrong with the bad ones if there are some."""
    if plan.base is None:
        for file in (KEYS, QUARANTINE) if plan.scan.num_bad else (KEYS,):
            shutil.copyfile(plan.scan.folder / file, directory / file)
        return
    join_parquet([plan.base.directory / KEYS, plan.scan.folder / KEYS], directory / KEYS)
    bad = [folder / QUARANTINE for folder in (plan.base.directory, plan.scan.folder)]
    if text := b"".join(file.read_bytes() for file in bad if file.is_file()):
        (directory / QUARANTINE).write_bytes(text)


def _write_for_the_next(directory: Path, plan: DirectoryPlan, arrival: Arrival) -> None:
    """Writes what a directory that is appended to this one must know of it."""
    write_files(directory / FILES, arrival.files)
    if plan.groups is not None:
        write_groups(directory / GROUPS, plan.groups)
    before = plan.base.train_scalars() if plan.base is not None else {}
    for file in before:
        _link(file, directory / file.name)
    copy_chosen(
        plan.scan.folder / SCALARS,
        _in_train(plan),
        directory / TRAIN_SCALARS.format(len(before) + 1),
        plan.scan.features,
        texts=plan.config.text is not None,
    )


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


def _link(file: Path, target: Path) -> None:
    """Makes a second name of a file that nobody writes to any more, or a copy where there can be none."""
    try:
        os.link(file, target)
    except OSError:  # another disk, a file system without links, or too many of them
        shutil.copyfile(file, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
