"""The scan: one pass over a source, after which all that a plan needs is known and every good example is encoded."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from tasks.prepare.batches import encode_frames
from tasks.prepare.manifest import QUARANTINE, Feature
from tasks.prepare.source import ID, ID_FEATURE, LABEL, LABEL_FEATURE, Batch, Source, SourceSchema
from tasks.prepare.spool import Spool
from tasks.prepare.statistics import ScalarsWriter
from tasks.prepare.tally import Tally

KEYS, SCALARS, FRAMES = "keys.parquet", "scalars.arrow", "frames"
SECONDS_BETWEEN_LINES = 10.0

logger = logging.getLogger("millstream")


@dataclass(frozen=True)
class Scan:
    """What is known of a source's n good examples, in its order, and where they lie encoded."""

    folder: Path
    """Holds the frames, and KEYS, QUARANTINE and SCALARS."""
    schema: SourceSchema
    notes: tuple[str, ...]
    spool: Spool
    labels: NDArray[np.int64]
    """[n], indices into the label map."""
    hashes: NDArray[np.uint64]
    """[n, 2], of the keys and the seed."""
    split_by: NDArray[np.int64] | list[str] | None
    """n values that data.splits goes by."""
    num_bad: int

    @property
    def features(self) -> dict[str, Feature]:
        """The features as they are stored: those of the schema, label and id."""
        return stored_features(self.schema)


def stored_features(schema: SourceSchema) -> dict[str, Feature]:
    """Returns the features of a shard: those of the source, label and id."""
    return {**schema.features, LABEL: LABEL_FEATURE, ID: ID_FEATURE}


def scan(source: Source, folder: Path, *, seed: int, max_bad_fraction: float) -> Scan:
    """Returns the scan of a source; `folder` must be empty.

    Raises DataError if it holds no good example, or more than `max_bad_fraction` bad ones, of which it names the first.
    """
    features = stored_features(source.schema)
    tally, spool = Tally(seed), Spool(folder / FRAMES)
    with ExitStack() as stack:
        stack.callback(spool.close)
        keys = stack.enter_context(pyarrow.parquet.ParquetWriter(folder / KEYS, _KEYS_SCHEMA, compression="zstd"))
        scalars = stack.enter_context(ScalarsWriter(folder / SCALARS, features))
        quarantine = stack.enter_context(open(folder / QUARANTINE, "w", encoding="utf-8"))
        for batch in read_with_progress(source):
            tally.add(batch)
            quarantine.writelines(json.dumps(bad.model_dump(), ensure_ascii=False) + "\n" for bad in batch.bad)
            if not len(batch.rows):
                continue
            columns = {**batch.columns, LABEL: batch.labels, ID: batch.rows}
            for frames in encode_frames(columns, features):
                spool.append(frames)
            scalars.write(columns)
            keys.write_batch(pa.record_batch({"id": batch.rows, "key": list(batch.keys)}, schema=_KEYS_SCHEMA))
    tally.check(max_bad_fraction)
    return Scan(
        folder=folder,
        schema=source.schema,
        notes=source.notes,
        spool=spool,
        labels=tally.labels,
        hashes=tally.hashes,
        split_by=tally.split_by,
        num_bad=tally.num_bad,
    )


def read_with_progress(source: Source) -> Iterator[Batch]:
    """Yields the batches of a source; a line says now and then how far it has come."""
    begun = told = time.monotonic()
    num_examples = 0
    for batch in source.read():
        num_examples += len(batch.rows)
        now = time.monotonic()
        if now - told > SECONDS_BETWEEN_LINES:
            told = now
            logger.info("prepare: %d examples read, %.0f a second", num_examples, num_examples / (now - begun))
        yield batch


_KEYS_SCHEMA = pa.schema({"id": pa.int64(), "key": pa.string()})
