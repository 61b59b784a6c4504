"""The shard directory: planned, written, described and verified."""

import importlib.metadata
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.config import DataConfig
from tasks.download.record import RawData
from tasks.errors import DataError
from tasks.files import atomic_directory, digest_json, is_whole, lock, verify
from tasks.prepare.digits import read_digits
from tasks.prepare.examples import Examples
from tasks.prepare.frame import frame
from tasks.prepare.manifest import MANIFEST, OFFSET_STRIDE, ShardManifest, Shards, SplitManifest
from tasks.prepare.plan import plan_shards, plan_splits
from tasks.prepare.tfds import shard_file, tfds_metadata
from tasks.prepare.writer import write_shard

VERSION = "1.0.0"  # TFDS wants one in the path; what the shards hold is named by the digest above it
FORMAT_VERSION = 1  # to be raised by whoever changes the bytes that the same config and source give

logger = logging.getLogger("millstream")


def data_digest(name: str, config: DataConfig, raw: RawData) -> str:
    """Returns 16 hex digits that name the shards of a config and a source: equal digests stand for equal bytes."""
    return digest_json(
        {"name": name, "data": config.model_dump(mode="json"), "source": raw.digest, "format": FORMAT_VERSION}
    )[:16]


def prepare(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards in data/<digest>/<name>/1.0.0/ of the workspace, written unless they are there and whole.

    A second process waits for the first and takes its shards. Raises DataError if the raw data is damaged or a split
    would lack a class.
    """
    digest = data_digest(name, config, raw)
    directory = workspace / "data" / digest / name / VERSION
    with lock(workspace / "data" / f".{digest}.lock"):
        # The parent is there if somebody ever began to write: then it is said why that is not enough.
        reused = directory.parent.exists() and is_whole(directory)
        if not reused:
            with atomic_directory(directory) as incomplete:
                _write(incomplete, name, config, raw, digest)
    shards = _shards(directory, digest, reused=reused)
    state = "there already, nothing written" if reused else "written"
    logger.info("prepare: %d shards in %s, %s", shards.num_shards, directory, state)
    return shards


def find_shards(name: str, config: DataConfig, raw: RawData, workspace: Path) -> Shards:
    """Returns the shards that `prepare` wrote; raises DataError if it has not, or one of its files is damaged."""
    digest = data_digest(name, config, raw)
    directory = workspace / "data" / digest / name / VERSION
    if not directory.exists():
        raise DataError(f"{directory}: no shards for this config; write them with `millstream prepare`")
    verify(directory)
    return _shards(directory, digest, reused=True)


def _shards(directory: Path, digest: str, *, reused: bool) -> Shards:
    splits = ShardManifest.read(directory / MANIFEST).splits
    return Shards(
        directory=directory,
        data_digest=digest,
        num_shards=sum(len(split.shards) for split in splits.values()),
        num_examples={name: split.num_examples for name, split in splits.items()},
        reused=reused,
    )


def _write(directory: Path, name: str, config: DataConfig, raw: RawData, digest: str) -> None:
    verify(raw.directory)  # the digest of the shards vouches for it
    examples = read_digits(raw.directory)
    plan = plan_splits(examples.labels, config.splits.model_dump(), config.seed)
    manifest = ShardManifest(
        name=name,
        version=VERSION,
        data_digest=digest,
        source_digest=raw.digest,
        seed=config.seed,
        offset_stride=OFFSET_STRIDE,
        inputs=examples.inputs,
        target=examples.target,
        id=examples.id,
        features=examples.features,
        label_map=examples.label_map,
        splits={
            split: _write_split(directory, name, split, examples, rows, target_bytes=config.shard_size.size_bytes)
            for split, rows in plan.items()
        },
        code_version=_code_version(),
    )
    manifest.write(directory / MANIFEST)
    for file, text in tfds_metadata(manifest).items():
        (directory / file).write_text(text, encoding="utf-8")


def _write_split(
    directory: Path, name: str, split: str, examples: Examples, rows: NDArray[np.int64], *, target_bytes: int
) -> SplitManifest:
    # Shapes are fixed, so one record is as long as another, but for the few bytes of a varint.
    record_bytes = len(frame(examples.encode(rows[0])))
    shards = tuple(
        write_shard(
            directory / shard_file(name, split, shard.index, shard.num_shards),
            examples.frames(rows[shard.start : shard.stop]),
        )
        for shard in plan_shards(len(rows), size_bytes=len(rows) * record_bytes, target_bytes=target_bytes)
    )
    logger.info("prepare: %s, %d examples in %d shard(s)", split, len(rows), len(shards))
    counts = np.bincount(examples.labels[rows], minlength=len(examples.label_map))
    return SplitManifest(num_examples=len(rows), class_counts=tuple(counts.tolist()), shards=shards)


def _code_version() -> str:
    try:
        return importlib.metadata.version("millstream")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
