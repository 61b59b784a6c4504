"""Statistics: of numbers and categories over the training split, whatever the split turns out to be."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.prepare.manifest import Feature, FeatureStatistics
from tasks.prepare.source import Column

_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.binary()}


class ScalarsWriter:
    """Writes the columns that have statistics to an Arrow file, since their examples' splits are not known yet."""

    def __init__(self, path: Path, features: Mapping[str, Feature]) -> None:
        scalars = {
            name: feature for name, feature in features.items() if feature.kind in {"number", "category", "missing"}
        }
        self._schema = pa.schema({name: _TYPES[feature.dtype] for name, feature in scalars.items()})
        self._path = path

    def __enter__(self) -> Self:
        self._writer = pa.ipc.new_stream(self._path, self._schema)
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write(self, columns: Mapping[str, Column]) -> None:
        """Adds a batch; columns without statistics are passed over."""
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        if arrays:
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))


def summarize(path: Path, chosen: NDArray[np.bool_], features: Mapping[str, Feature]) -> dict[str, FeatureStatistics]:
    """Returns the statistics of each number and category over the chosen examples of a ScalarsWriter's file.

    Means and deviations are taken in float64, batch by batch (Chan, Golub and LeVeque, 1979).
    """
    summaries = {
        name: _Category() if feature.kind == "category" else _Number()
        for name, feature in features.items()
        if feature.kind in {"number", "category"}
    }
    for batch, mask in _batches(path, chosen) if summaries else ():
        for name, summary in summaries.items():
            mark = features[name].missing
            known = mask & (batch[mark].to_numpy() == 0) if mark is not None else mask
            summary.add(batch[name].filter(pa.array(known)))
            summary.num_missing += int(mask.sum() - known.sum())
    return {name: summary.result() for name, summary in summaries.items()}


def _batches(path: Path, chosen: NDArray[np.bool_]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.bool_]]]:
    start = 0
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield batch, chosen[start : start + batch.num_rows]
            start += batch.num_rows


class _Number:
    """Count, mean and sum of squared deviations so far."""

    def __init__(self) -> None:
        self.num_missing = self._count = 0
        self._mean = self._squares = 0.0
        self._min, self._max = np.inf, -np.inf

    def add(self, values: pa.Array) -> None:
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        if not len(numbers):
            return
        mean, total = float(numbers.mean()), self._count + len(numbers)
        apart = mean - self._mean
        self._squares += float(np.square(numbers - mean).sum()) + apart**2 * self._count * len(numbers) / total
        self._mean += apart * len(numbers) / total
        self._count = total
        self._min, self._max = min(self._min, float(numbers.min())), max(self._max, float(numbers.max()))

    def result(self) -> FeatureStatistics:
        if not self._count:
            return FeatureStatistics(num_missing=self.num_missing)
        return FeatureStatistics(
            num_missing=self.num_missing,
            mean=self._mean,
            std=float(np.sqrt(self._squares / self._count)),
            min=self._min,
            max=self._max,
        )


class _Category:
    """Counts of the values so far."""

    def __init__(self) -> None:
        self.num_missing = 0
        self._counts: Counter[bytes] = Counter()

    def add(self, values: pa.Array) -> None:
        for pair in values.value_counts().to_pylist():
            self._counts[pair["values"]] += pair["counts"]

    def result(self) -> FeatureStatistics:
        texts = [(value.decode(), count) for value, count in self._counts.items()]
        vocabulary = tuple(sorted(texts, key=lambda pair: (-pair[1], pair[0])))
        return FeatureStatistics(num_missing=self.num_missing, vocabulary=vocabulary)
