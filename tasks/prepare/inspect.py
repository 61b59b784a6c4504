"""The inspection of a source: one pass over it that writes nothing."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tasks.config import DataConfig
from tasks.download.record import RawData
from tasks.errors import MillstreamError
from tasks.prepare.inspection import ClassShare, Inspection, ShownExample
from tasks.prepare.keys import hash_keys
from tasks.prepare.manifest import JPEG, Feature
from tasks.prepare.open import open_source
from tasks.prepare.plan import plan_shards
from tasks.prepare.scan import read_with_progress
from tasks.prepare.source import LABEL, Batch, Column, Source
from tasks.prepare.split import TRAIN, assign_splits
from tasks.prepare.statistics import Summaries, scalars_of
from tasks.prepare.tally import Tally, describe_bad
from tasks.prepare.targets import Targets, class_counts, describe
from tasks.splits import SPLITS

NUM_FIRST = 3  # examples that are shown
_ANEW = "data.append: these are the splits of all shards written anew; examples that have shards keep theirs"
MAX_SHOWN = 60  # characters of a value


def inspect_source(config: DataConfig, raw: RawData) -> Inspection:
    """Returns what the source in `raw` holds and what `prepare` would make of it.

    Raises DataError if it cannot be read at all, ConfigError if the config does not fit it.
    """
    source = open_source(config, raw)
    features = source.schema.features
    scalar = features | {LABEL: source.schema.target}
    tally, summaries = Tally(), Summaries(scalar, tokens=config.text)
    sizes: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    first: list[ShownExample] = []
    for batch in read_with_progress(source):
        tally.add(batch, hash_keys(batch.keys, config.seed))
        scalars = scalars_of(batch.columns | {LABEL: batch.labels}, scalar, texts=config.text is not None)
        summaries.add(scalars, np.ones(len(batch.rows), bool))
        sizes.append(_sizes(batch.columns, features, len(batch.rows)))
        first += _shown(batch, source, NUM_FIRST - len(first))
    # Numbers that are learned are shown among the features, by their own names.
    learned = source.schema.label_map if source.schema.target.dtype[:5] == "float" else ()
    learned_as = {f"{LABEL}.{place}": name for place, name in enumerate(learned)}
    labels, size = tally.labels, np.concatenate(sizes)
    split_of, notes, problem = _split(config, source, tally, labels)
    return Inspection(
        kind=config.source.kind,
        num_files=raw.num_files,
        size_bytes=raw.size_bytes,
        num_examples=len(labels),
        num_bad=tally.num_bad,
        bad=tuple(map(describe_bad, tally.first_bad)),
        problem=problem,
        features=features | dict.fromkeys(learned, source.schema.target),
        statistics={learned_as.get(name, name): found for name, found in summaries.result().items()},
        example_bytes_min=int(size.min()) if len(size) else 0,
        example_bytes_mean=float(size.mean()) if len(size) else 0.0,
        example_bytes_max=int(size.max()) if len(size) else 0,
        classes=_classes(source, labels, split_of),
        splits={split: int((split_of == index).sum()) for index, split in enumerate(SPLITS)} if len(split_of) else {},
        first=tuple(first),
        notes=(*source.notes, *notes, *([_ANEW] if config.append else [])),
    )


def _split(
    config: DataConfig, source: Source, tally: Tally, labels: Targets
) -> tuple[NDArray[np.int8], tuple[str, ...], str | None]:
    """Returns the splits, what is to be said of them, and why the source would be refused."""
    problem = None
    try:
        tally.check(config.max_bad_fraction)
    except MillstreamError as error:
        problem = str(error).partition(":\n")[0]  # the bad ones are listed anyway
    if not len(labels):
        return np.zeros(0, np.int8), (), problem
    try:
        splits, notes = assign_splits(
            config.splits,
            labels=labels,
            hashes=tally.hashes[:, 0],
            split_by=tally.split_by,
            label_map=source.schema.label_map,
            seed=config.seed,
        )
    except MillstreamError as error:
        return np.zeros(0, np.int8), (), problem or str(error)
    try:
        plan_shards(int((splits == TRAIN).sum()), size_bytes=0, target_bytes=1, num_shards=config.num_shards)
    except MillstreamError as error:
        problem = problem or str(error)
    return splits, notes, problem


def _classes(source: Source, labels: Targets, split_of: NDArray[np.int8]) -> tuple[ClassShare, ...]:
    names = source.schema.label_map
    counts = class_counts(labels, names)
    in_split = {
        split: class_counts(labels[split_of == index], names) if len(split_of) else ()
        for index, split in enumerate(SPLITS)
    }
    return tuple(
        ClassShare(
            name=name,
            num_examples=counts[label],
            fraction=counts[label] / max(1, len(labels)),
            splits={split: of_class[label] for split, of_class in in_split.items() if of_class},
        )
        for label, name in enumerate(names[: len(counts)])  # numbers are no classes
    )


def _sizes(columns: Mapping[str, Column], features: Mapping[str, Feature], num_examples: int) -> NDArray[np.int64]:
    """Returns the bytes of each example's values, [n]."""
    sizes = np.zeros(num_examples, np.int64)
    for name, feature in features.items():
        if feature.storage == "bytes_list":
            sizes += np.fromiter(map(len, columns[name]), np.int64, num_examples)
        else:
            sizes += math.prod(size or 0 for size in feature.shape) * np.dtype(feature.dtype).itemsize
    return sizes


def _shown(batch: Batch, source: Source, count: int) -> list[ShownExample]:
    return [
        ShownExample(
            key=batch.keys[place],
            label=describe(batch.labels[place], source.schema.label_map),
            values={
                name: _text(batch.columns[name][place], feature) for name, feature in source.schema.features.items()
            },
        )
        for place in range(min(count, len(batch.rows)))
    ]


def _text(value: bytes | NDArray[np.generic], feature: Feature) -> str:
    if isinstance(value, bytes):
        if feature.kind == "image":
            return f"{'JPEG' if value.startswith(JPEG) else 'PNG'} of {len(value)} bytes"
        text = value.decode()
    elif feature.shape:
        text = f"{list(feature.shape)} {feature.dtype}, {np.min(value)}..{np.max(value)}"
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
