"""The scan: one pass over a source, after which all that a plan needs is known and every good example is encoded."""

import json
import time
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from tasks.errors import DataError
from tasks.files import Record
from tasks.prepare.batches import encode_frames
from tasks.prepare.keys import hash_keys
from tasks.prepare.manifest import QUARANTINE, Feature
from tasks.prepare.source import ID, ID_FEATURE, LABEL, Batch, Source, SourceSchema
from tasks.prepare.spool import Places, Spool, SpoolWriter
from tasks.prepare.statistics import Scalars, ScalarsWriter, scalars_of
from tasks.prepare.tally import Tally
from tasks.prepare.threads import in_order
from tasks.progress import step_progress

KEYS, SCALARS, FRAMES, ARRAYS, KEPT = "keys.parquet", "scalars.parquet", "frames", "arrays.npz", "kept.json"
_KEYS_SCHEMA = pa.schema({"id": pa.int64(), "key": pa.string()})


@dataclass(frozen=True)
class Scan:
    """What is known of a source's n good examples, in its order, and where they lie encoded."""

    folder: Path
    """Holds the frames, and KEYS, QUARANTINE and SCALARS."""
    schema: SourceSchema
    notes: tuple[str, ...]
    spool: Spool
    labels: NDArray[Any]
    """What is learned, as in a Batch: [n, ...]."""
    hashes: NDArray[np.uint64]
    """[n, 2], of the keys and the seed."""
    split_by: NDArray[np.int64] | list[str] | None
    """n values that data.splits goes by."""
    num_bad: int

    def keep(self) -> None:
        """Makes the scan one that `kept_scan` finds in its folder."""
        names, split_by = None, self.split_by
        if isinstance(split_by, list):
            names, split_by = np.unique(np.array(split_by, object), return_inverse=True)
        arrays = {"labels": self.labels, "hashes": self.hashes, **self.spool.places._asdict()}
        np.savez(self.folder / ARRAYS, allow_pickle=False, **arrays, **({} if split_by is None else {"by": split_by}))
        kept = _Kept(
            boot=_boot_id(),
            features=self.schema.features,
            inputs=self.schema.inputs,
            label_map=self.schema.label_map,
            target=self.schema.target,
            notes=self.notes,
            split_names=None if names is None else tuple(names.tolist()),
            num_bad=self.num_bad,
            meanings=self.schema.meanings,
        )
        kept.write(self.folder / KEPT)

    @property
    def features(self) -> dict[str, Feature]:
        """The features as they are stored: those of the schema, label and id."""
        return stored_features(self.schema)


def stored_features(schema: SourceSchema) -> dict[str, Feature]:
    """Returns the features of a shard: those of the source, label and id."""
    return {**schema.features, LABEL: schema.target, ID: ID_FEATURE}


def scan(
    source: Source,
    folder: Path,
    *,
    seed: int,
    max_bad_fraction: float,
    num_threads: int = 1,
    texts: bool = False,
    may_be_empty: bool = False,
) -> Scan:
    """Returns the scan of a source; `folder` must be empty. With `texts` the words of these can be counted later.

    Raises DataError if it holds no good example, or more than `max_bad_fraction` bad ones, of which it names the first;
    of none at all only unless it `may_be_empty`.
    """
    features = stored_features(source.schema)
    tally, spool = Tally(), SpoolWriter(folder / FRAMES)
    starts, sizes = array("q"), array("i")  # which grow in place: lists of arrays would be there twice when joined
    with ExitStack() as stack:
        stack.enter_context(spool)
        keys = stack.enter_context(pyarrow.parquet.ParquetWriter(folder / KEYS, _KEYS_SCHEMA, compression="zstd"))
        scalars = stack.enter_context(ScalarsWriter(folder / SCALARS, features, texts=texts))
        quarantine = stack.enter_context(open(folder / QUARANTINE, "w", encoding="utf-8"))
        encode = partial(_encode, spool=spool, features=features, seed=seed, texts=texts)
        for encoded in in_order(encode, read_with_progress(source), num_threads=num_threads):
            batch = encoded.batch
            tally.add(batch, encoded.hashes)
            quarantine.writelines(json.dumps(bad.model_dump(), ensure_ascii=False) + "\n" for bad in batch.bad)
            if not len(batch.rows):
                continue
            for places in encoded.places:
                starts.frombytes(places.starts.data.cast("B"))
                sizes.frombytes(places.sizes.data.cast("B"))
            scalars.write(encoded.scalars)
            keys.write_batch(pa.record_batch({"id": batch.rows, "key": list(batch.keys)}, schema=_KEYS_SCHEMA))
    if tally.num_examples or not may_be_empty:
        tally.check(max_bad_fraction)
    return Scan(
        folder=folder,
        schema=source.schema,
        notes=source.notes,
        spool=Spool(folder / FRAMES, Places(np.frombuffer(starts, np.int64), np.frombuffer(sizes, np.int32))),
        labels=tally.labels,
        hashes=tally.hashes,
        split_by=tally.split_by,
        num_bad=tally.num_bad,
    )


def kept_scan(folder: Path) -> Scan | None:
    """Returns the scan that an interrupted process finished in this folder; None if there is none.

    It was not synced, so that it is trusted only until the machine is started anew.
    """
    if not (folder / KEPT).is_file():
        return None
    try:
        kept = _Kept.read(folder / KEPT)
    except DataError:  # another release's
        return None
    if not kept.boot or kept.boot != _boot_id():
        return None
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        by = arrays.get("by")
        return Scan(
            folder=folder,
            schema=SourceSchema(kept.features, kept.inputs, kept.label_map, kept.target, kept.meanings),
            notes=kept.notes,
            spool=Spool(folder / FRAMES, Places(arrays["starts"], arrays["sizes"])),
            labels=arrays["labels"],
            hashes=arrays["hashes"],
            split_by=by if kept.split_names is None else [kept.split_names[code] for code in by.tolist()],
            num_bad=kept.num_bad,
        )


def read_with_progress(source: Source) -> Iterator[Batch]:
    """Yields the batches of a source, and shows how far it has come."""
    begun = time.monotonic()
    num_examples = num_bad = 0
    with step_progress("reading the source") as say:
        for batch in source.read():
            num_examples, num_bad = num_examples + len(batch.rows), num_bad + len(batch.bad)
            rate = num_examples / max(time.monotonic() - begun, 1e-3)
            say(f"{num_examples:,} examples, {rate:,.0f} a second" + (f", {num_bad:,} bad" if num_bad else ""))
            yield batch


class _Kept(Record):
    """What a scan is besides its arrays."""

    boot: str
    features: dict[str, Feature]
    inputs: tuple[str, ...]
    label_map: tuple[str, ...]
    target: Feature
    notes: tuple[str, ...]
    split_names: tuple[str, ...] | None
    num_bad: int
    meanings: dict[str, str]


def _boot_id() -> str:
    """Returns what names this start of the machine; empty if it cannot be known."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""


class _Encoded(NamedTuple):
    """A batch and what is made of it."""

    batch: Batch
    hashes: NDArray[np.uint64]
    """Of the keys."""
    places: list[Places]
    """Of the frames in the spool."""
    scalars: Scalars


def _encode(batch: Batch, *, spool: SpoolWriter, features: Mapping[str, Feature], seed: int, texts: bool) -> _Encoded:
    columns = {**batch.columns, LABEL: batch.labels, ID: batch.rows}
    places = list(map(spool.append, encode_frames(columns, features))) if len(batch.rows) else []
    return _Encoded(batch, hash_keys(batch.keys, seed), places, scalars_of(columns, features, texts=texts))
