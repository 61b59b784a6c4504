"""Base: the complete shard directory to which new files are appended, and what it must know of its own for that."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import DataError
from tasks.prepare.manifest import MANIFEST, Feature, Generation, ShardManifest
from tasks.prepare.scan import KEYS, Scan, stored_features
from tasks.prepare.source import Part, SourceSchema
from tasks.prepare.split import Held
from tasks.prepare.statistics import num_scalars
from tasks.prepare.wording import count, some
from tasks.splits import SPLITS

FILES, GROUPS, TRAIN_SCALARS = "files.parquet", "groups.parquet", "train_scalars-{:05d}.parquet"
_ANEW = "take data.append=false to write all shards anew"


@dataclass(frozen=True)
class Base:
    """A shard directory that was written with data.append, complete."""

    directory: Path
    manifest: ShardManifest

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Returns the base in a directory; raises DataError if its manifest cannot be read."""
        return cls(directory, ShardManifest.read(directory / MANIFEST))

    @property
    def generations(self) -> tuple[Generation, ...]:
        return self.manifest.generations

    @property
    def sources(self) -> tuple[str, ...]:
        """The digests of the source at each generation, the oldest first."""
        return tuple(generation.source_digest for generation in self.generations)

    @property
    def num_examples(self) -> int:
        """In all splits."""
        return sum(split.num_examples for split in self.manifest.splits.values())

    @property
    def num_rows(self) -> int:
        """Of the source, good and bad: the id of the first example that is appended."""
        return sum(generation.num_rows for generation in self.generations)

    def files(self) -> dict[str, str]:
        """Returns the sha256 of each file of the source that its examples were read from, by path.

        Raises DataError if they cannot be read.
        """
        return _read_pairs(self.directory / FILES)

    def held(self) -> Held:
        """Returns what its splits hold."""
        groups = self.directory / GROUPS
        return Held(
            num_examples=np.array([self.manifest.splits[split].num_examples for split in SPLITS]),
            groups=_read_pairs(groups) if groups.is_file() else {},
        )

    def train_scalars(self) -> dict[Path, NDArray[np.bool_]]:
        """Returns the files of what statistics are made of, with a mask of all: they hold the training split alone."""
        files = [self.directory / TRAIN_SCALARS.format(each.number) for each in self.generations]
        return {file: np.ones(num_scalars(file), bool) for file in files}

    def check_schema(self, schema: SourceSchema) -> None:
        """Raises DataError if, with the new files, examples are not what they are in the shards that are there."""
        there = self.manifest
        if added := [name for name in schema.label_map if name not in there.label_map]:
            raise DataError(
                f"data.append: the new files hold {count(len(added), 'class', 'classes')} ({some(added)}) that "
                f"{self.directory} has no label for; {_ANEW}, or leave the examples of them out"
            )
        features = stored_features(schema)
        for name in dict.fromkeys([*there.features, *features]):
            was = _described(there.features.get(name), there.meanings.get(name))
            now = _described(features.get(name), schema.meanings.get(name))
            if was != now:
                raise DataError(
                    f"data.append: with the new files the feature {name} {now}, but in {self.directory} it {was}; "
                    f"{_ANEW}, or give the type of a column in data.source.types"
                )
        assert schema.label_map == there.label_map, "the same classes have the same order"

    def check_keys(self, scan: Scan) -> None:
        """Raises DataError if a new example has the key of one that is there: an id names one row."""
        keys = pq.read_table(self.directory / KEYS, columns=["key"])["key"]
        for group in _row_groups(scan.folder / KEYS):
            again = group["key"].filter(pc.is_in(group["key"], keys)).to_pylist()
            if again:
                raise DataError(
                    f"data.append: the new files hold {some(again)} in data.source.id, but {self.directory} has "
                    f"{'these' if again[1:] else 'this'} already, and an id names one row; {_ANEW}, which leaves the "
                    "later ones out as bad examples, or take them out of the new files"
                )


@dataclass(frozen=True)
class Arrival:
    """A source with data.append: the files that are there now, and where the examples of some of them lie already."""

    files: Mapping[str, str]
    """sha256 of each file, by path."""
    base: Base | None
    """None: they are all new."""

    @property
    def part(self) -> Part | None:
        """What is to be read; None: all of it."""
        if self.base is None:
            return None
        return Part(files=frozenset(self.files.keys() - self.base.files().keys()), first_row=self.base.num_rows)


def write_files(path: Path, files: Mapping[str, str]) -> None:
    """Writes what `Base.files` returns."""
    _write_pairs(path, files, pa.string())


def write_groups(path: Path, groups: Mapping[str, int]) -> None:
    """Writes the split of each group, as an index into SPLITS."""
    _write_pairs(path, groups, pa.int8())


def join_parquet(paths: Sequence[Path], target: Path) -> None:
    """Writes the rows of some Parquet files of one schema to another, one after another."""
    with pq.ParquetWriter(target, pq.read_schema(paths[0]), compression="zstd") as writer:
        for path in paths:
            for group in _row_groups(path):
                writer.write_table(group)


def _described(feature: Feature | None, meaning: str | None) -> str:
    """Returns all that is known of how a feature is stored, as the end of a sentence."""
    if feature is None:
        return "is not there"
    missing = "never missing" if feature.missing is None else "sometimes missing"
    return f"is {meaning or feature.kind}, {feature.dtype} {list(feature.shape)}, {missing}"


def _read_pairs(path: Path) -> dict[str, Any]:
    try:
        names, values = pq.read_table(path).columns
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}); delete {path.parent} and run again") from error
    return dict(zip(names.to_pylist(), values.to_pylist(), strict=True))


def _write_pairs(path: Path, pairs: Mapping[str, Any], type: pa.DataType) -> None:
    names = sorted(pairs)
    pq.write_table(
        pa.table({"name": pa.array(names, pa.string()), "value": pa.array([pairs[name] for name in names], type)}), path
    )


def _row_groups(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)
