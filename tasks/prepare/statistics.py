"""Statistics: of numbers and categories over the training split, whatever the split turns out to be."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.manifest import Feature, FeatureStatistics
from tasks.prepare.source import Column

MAX_CATEGORIES = 100_000
"""More different values than this are no categories, but text or the names of rows."""

_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.binary()}


class ScalarsWriter:
    """Writes the columns that have statistics to an Arrow file, since their examples' splits are not known yet."""

    def __init__(self, path: Path, features: Mapping[str, Feature]) -> None:
        self._schema, self._path = scalar_schema(features), path

    def __enter__(self) -> Self:
        self._writer = pa.ipc.new_stream(self._path, self._schema)
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write(self, columns: Mapping[str, Column]) -> None:
        """Adds a batch; columns without statistics are passed over."""
        arrays = to_arrow(columns, self._schema)
        if arrays:
            self._writer.write_batch(pa.record_batch(arrays))


def scalar_schema(features: Mapping[str, Feature]) -> pa.Schema:
    """Returns the columns that statistics are made of."""
    scalars = {name: feature for name, feature in features.items() if feature.kind in {"number", "category", "missing"}}
    return pa.schema({name: _TYPES[feature.dtype] for name, feature in scalars.items()})


def to_arrow(columns: Mapping[str, Column], schema: pa.Schema) -> dict[str, pa.Array]:
    """Returns the columns of a schema as Arrow arrays."""
    return {field.name: pa.array(columns[field.name], field.type) for field in schema}


def summarize(path: Path, chosen: NDArray[np.bool_], features: Mapping[str, Feature]) -> dict[str, FeatureStatistics]:
    """Returns the statistics of each number and category over the chosen examples of a ScalarsWriter's file.

    Raises ConfigError like `Summaries`.
    """
    summaries = Summaries(features)
    for batch, mask in _batches(path, chosen) if summaries else ():
        summaries.add({name: batch[name] for name in batch.schema.names}, mask)
    return summaries.result()


class Summaries:
    """The statistics of numbers and categories so far.

    Means and deviations are taken in float64, batch by batch (Chan, Golub and LeVeque, 1979). Raises ConfigError if
    there are too many categories to be some, or if numbers lie so far apart that they have no finite deviation.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features = features
        self._of = {
            name: _Category(name) if feature.kind == "category" else _Number(name)
            for name, feature in features.items()
            if feature.kind in {"number", "category"}
        }

    def __len__(self) -> int:
        """Returns the number of features that have statistics."""
        return len(self._of)

    def add(self, columns: Mapping[str, pa.Array], chosen: NDArray[np.bool_]) -> None:
        """Takes in the chosen examples of a batch."""
        for name, summary in self._of.items():
            mark = self._features[name].missing
            known = chosen & (columns[mark].to_numpy() == 0) if mark is not None else chosen
            summary.add(columns[name].filter(pa.array(known)))
            summary.num_missing += int(chosen.sum() - known.sum())

    def result(self) -> dict[str, FeatureStatistics]:
        """Returns the statistics by feature."""
        return {name: summary.result() for name, summary in self._of.items()}


def _batches(path: Path, chosen: NDArray[np.bool_]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.bool_]]]:
    start = 0
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield batch, chosen[start : start + batch.num_rows]
            start += batch.num_rows


class _Number:
    """Count, mean and sum of squared deviations so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.num_missing = self._count = 0
        self._mean = self._squares = 0.0
        self._min, self._max = np.inf, -np.inf

    def add(self, values: pa.Array) -> None:
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        if not len(numbers):
            return
        with np.errstate(over="ignore", invalid="ignore"):  # `result` refuses what comes of it
            mean, total = numbers.mean(), self._count + len(numbers)
            apart = mean - self._mean
            self._squares += np.square(numbers - mean).sum() + apart * apart * self._count * len(numbers) / total
            self._mean += apart * len(numbers) / total
        self._count = total
        self._min, self._max = min(self._min, float(numbers.min())), max(self._max, float(numbers.max()))

    def result(self) -> FeatureStatistics:
        if not self._count:
            return FeatureStatistics(num_missing=self.num_missing)
        # Rounded means would give equal numbers a deviation, by which any other number becomes a huge one.
        varies = self._min < self._max
        mean = float(self._mean) if varies else self._min
        std = float(np.sqrt(self._squares / self._count)) if varies else 0.0
        if not (np.isfinite(mean) and np.isfinite(std)):
            raise ConfigError(
                f"data.source: {self._name} holds numbers from {self._min:g} to {self._max:g}, which are too large to "
                "be normalised; leave it out, or write it anew in another unit"
            )
        return FeatureStatistics(
            num_missing=self.num_missing,
            mean=mean,
            std=std,
            min=self._min,
            max=self._max,
        )


class _Category:
    """Counts of the values so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.num_missing = 0
        self._counts: Counter[bytes] = Counter()

    def add(self, values: pa.Array) -> None:
        for pair in values.value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]
        if len(self._counts) > MAX_CATEGORIES:
            raise ConfigError(
                f"data.source: {self._name} has more than {MAX_CATEGORIES:,} different values, too many for "
                "categories; name it in data.source.text if it is text, else leave it out"
            )

    def result(self) -> FeatureStatistics:
        texts = [(value.decode(), count) for value, count in self._counts.items()]
        vocabulary = tuple(sorted(texts, key=lambda pair: (-pair[1], pair[0])))
        return FeatureStatistics(num_missing=self.num_missing, vocabulary=vocabulary)
