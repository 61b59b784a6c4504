"""The scan: one pass over a source, after which all that a plan needs is known and every good example is encoded."""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from tasks.errors import DataError
from tasks.prepare.batches import encode_frames
from tasks.prepare.keys import hash_keys
from tasks.prepare.manifest import BadExample, Feature
from tasks.prepare.source import ID, ID_FEATURE, LABEL, LABEL_FEATURE, Batch, Source, SourceSchema
from tasks.prepare.spool import Spool
from tasks.prepare.statistics import ScalarsWriter

KEYS, QUARANTINE, SCALARS, FRAMES = "keys.parquet", "quarantine.jsonl", "scalars.arrow", "frames"
NUM_SHOWN = 10  # bad examples that an error lists
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
    labels: list[NDArray[np.int64]] = []
    hashes: list[NDArray[np.uint64]] = []
    split_by: list[Sequence[str] | NDArray[np.int64]] = []
    first_bad: list[BadExample] = []
    num_good = num_bad = 0
    spool = Spool(folder / FRAMES)
    with ExitStack() as stack:
        stack.callback(spool.close)
        keys = stack.enter_context(_keys_writer(folder / KEYS))
        scalars = stack.enter_context(ScalarsWriter(folder / SCALARS, features))
        quarantine = stack.enter_context(open(folder / QUARANTINE, "w", encoding="utf-8"))
        for batch in _with_progress(source):
            num_bad += len(batch.bad)
            first_bad += batch.bad[: NUM_SHOWN - len(first_bad)]
            quarantine.writelines(json.dumps(bad.model_dump(), ensure_ascii=False) + "\n" for bad in batch.bad)
            if not len(batch.rows):
                continue
            num_good += len(batch.rows)
            columns = {**batch.columns, LABEL: batch.labels, ID: batch.rows}
            for frames in encode_frames(columns, features):
                spool.append(frames)
            scalars.write(columns)
            keys.write_batch(pa.record_batch({"id": batch.rows, "key": list(batch.keys)}, schema=_KEYS_SCHEMA))
            labels.append(batch.labels)
            hashes.append(hash_keys(batch.keys, seed))
            if batch.split_by is not None:
                split_by.append(batch.split_by)
    _check(num_good, num_bad, first_bad, max_bad_fraction)
    return Scan(
        folder=folder,
        schema=source.schema,
        notes=source.notes,
        spool=spool,
        labels=np.concatenate(labels),
        hashes=np.concatenate(hashes),
        split_by=_joined(split_by),
        num_bad=num_bad,
    )


def describe_bad(bad: BadExample) -> str:
    """Returns where a bad example is and what is wrong with it, in a clause."""
    row = "" if bad.row is None else f", row {bad.row}"
    column = "" if bad.column is None else f", column {bad.column}"
    return f"{bad.path}{row}{column} {bad.reason}"


_KEYS_SCHEMA = pa.schema({"id": pa.int64(), "key": pa.string()})


@contextmanager
def _keys_writer(path: Path) -> Iterator[pyarrow.parquet.ParquetWriter]:
    with pyarrow.parquet.ParquetWriter(path, _KEYS_SCHEMA, compression="zstd") as writer:
        yield writer


def _with_progress(source: Source) -> Iterator[Batch]:
    """Yields the batches; a line says now and then how far it has come."""
    begun = told = time.monotonic()
    num_examples = 0
    for batch in source.read():
        num_examples += len(batch.rows)
        now = time.monotonic()
        if now - told > SECONDS_BETWEEN_LINES:
            told = now
            logger.info("prepare: %d examples read, %.0f a second", num_examples, num_examples / (now - begun))
        yield batch


def _check(num_good: int, num_bad: int, first_bad: Sequence[BadExample], max_bad_fraction: float) -> None:
    total = num_good + num_bad
    if not total:
        raise DataError("data.source: holds no examples; give a source that has some")
    if num_bad > max_bad_fraction * total or not num_good:
        listed = "".join(f"\n  {describe_bad(bad)}" for bad in first_bad)
        more = f"\n  and {num_bad - len(first_bad)} more" if num_bad > len(first_bad) else ""
        raise DataError(
            f"data.max_bad_fraction={max_bad_fraction:g}: {num_bad} of {total} examples cannot be used; mend or remove "
            f"them, or raise it to leave them out:{listed}{more}"
        )


def _joined(parts: Sequence[Sequence[str] | NDArray[np.int64]]) -> NDArray[np.int64] | list[str] | None:
    if not parts:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [str(value) for part in parts for value in part]
