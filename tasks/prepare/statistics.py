"""Statistics: of numbers, categories and words over the training split, whatever the split turns out to be."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from tasks.errors import ConfigError
from tasks.prepare.histogram import histogram_of, merged
from tasks.prepare.manifest import Feature, FeatureStatistics, Histogram
from tasks.prepare.source import Column
from tasks.prepare.vocabulary import WordCounts
from tasks.texts import Tokens

MAX_CATEGORIES = 100_000
"""More different values than this are no categories, but text or the names of rows."""

_KINDS = {"number", "category", "missing"}
_TYPES = {"int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(), "string": pa.binary()}

MAX_PIXELS = 64  # of a tensor, by which its brightness is told: all of them would cost as much as its encoding

READ_BUFFER_BYTES = 64 * 1024
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

Scalars = dict[str, pa.Array]
"""The columns that have statistics, and those that mark what is missing in them."""


def scalar_features(features: Mapping[str, Feature], *, texts: bool) -> dict[str, Feature]:
    """Returns the features that statistics are made of; an image stands there by its height and width in pixels.

    So does a tensor of uint8, as pixels are, by its brightness, and each of the numbers that are learned, by its place.
    """
    size = Feature.of("number", "int64")
    scalars = {name: feature for name, feature in features.items() if feature.kind in _kinds(texts=texts)}
    scalars |= {
        f"{name}.{place}": Feature.of("number", feature.dtype)
        for name, feature in _learned(features)
        for place in range(feature.shape[0] or 0)
    }
    scalars |= {f"{name}.brightness": Feature.of("number", "float64") for name in _pixels(features)}
    return scalars | {f"{name}.{side}": size for name in _images(features) for side in ("height", "width")}


def scalars_of(columns: Mapping[str, Column], features: Mapping[str, Feature], *, texts: bool = False) -> Scalars:
    """Returns the columns of `scalar_features` of a batch with these features."""
    scalars = {
        name: pa.array(columns[name], _TYPES[feature.dtype])
        for name, feature in features.items()
        if feature.kind in _kinds(texts=texts)
    }
    for name, feature in _learned(features):
        numbers = np.asarray(columns[name]).T
        scalars |= {f"{name}.{place}": pa.array(each, _TYPES[feature.dtype]) for place, each in enumerate(numbers)}
    for name in _pixels(features):
        scalars[f"{name}.brightness"] = pa.array(_brightness(np.asarray(columns[name])))
    for name in _images(features):
        sizes = np.array([_size(encoded) for encoded in columns[name]], np.int64).reshape(-1, 2)
        scalars |= {f"{name}.width": pa.array(sizes[:, 0]), f"{name}.height": pa.array(sizes[:, 1])}
    return scalars


class ScalarsWriter:
    """Writes scalars to a Parquet file, since their examples' splits are not known yet; each batch is a row group."""

    def __init__(self, path: Path, features: Mapping[str, Feature], *, texts: bool = False) -> None:
        scalars = scalar_features(features, texts=texts)
        self._schema = pa.schema({name: _TYPES[feature.dtype] for name, feature in scalars.items()})
        self._compression = {name: "zstd" if feature.kind == "text" else "none" for name, feature in scalars.items()}
        self._path = path

    def __enter__(self) -> Self:
        self._writer = pyarrow.parquet.ParquetWriter(
            self._path, self._schema, use_dictionary=False, write_statistics=False, compression=self._compression
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write(self, scalars: Scalars) -> None:
        """Adds those of a batch."""
        if scalars:
            self._writer.write_batch(pa.record_batch(scalars).select(self._schema.names))


def copy_chosen(
    path: Path, chosen: NDArray[np.bool_], target: Path, features: Mapping[str, Feature], *, texts: bool = False
) -> None:
    """Writes the scalars of the chosen examples of a ScalarsWriter's file to another such file, in their order."""
    with ScalarsWriter(target, features, texts=texts) as writer:
        for scalars, mask in _batches({path: chosen}, list(scalar_features(features, texts=texts)), by_group=True):
            writer.write({name: values.filter(pa.array(mask)) for name, values in scalars.items()})


def num_scalars(path: Path) -> int:
    """Returns of how many examples a ScalarsWriter's file has the scalars."""
    return int(pyarrow.parquet.read_metadata(path).num_rows)


def summarize(
    chosen: Mapping[Path, NDArray[np.bool_]], features: Mapping[str, Feature], *, tokens: Tokens | None = None
) -> dict[str, FeatureStatistics]:
    """Returns the statistics of each scalar feature over the chosen examples of each of the ScalarsWriters' files.

    For the quantiles one column at a time is in memory, 8 bytes an example; of texts one batch of the source.
    Raises ConfigError like `Summaries`.
    """
    summaries = Summaries(features, tokens=tokens)
    plain = scalar_features(features, texts=False)
    for scalars, mask in _batches(chosen, list(plain)) if summaries else ():
        summaries.add(scalars, mask)
    for name in scalar_features(features, texts=tokens is not None).keys() - plain.keys():
        for scalars, mask in _batches(chosen, _with_mark(name, summaries.mark(name)), by_group=True):
            summaries.add(scalars, mask)
    found = summaries.result()
    for name, statistics in found.items():
        if statistics.mean is not None:
            num_known = sum(int(mask.sum()) for mask in chosen.values()) - statistics.num_missing
            quantiles = _quantiles(chosen, name, summaries.mark(name), num_known)
            found[name] = statistics.model_copy(update={"quantiles": quantiles})
    return found


class Summaries:
    """The statistics of numbers and categories so far, and of the words of texts if `tokens` says what these are.

    Means and deviations are taken in float64, batch by batch (Chan, Golub and LeVeque, 1979). Raises ConfigError if
    there are too many categories to be some, or if numbers lie so far apart that they have no finite deviation.
    """

    def __init__(self, features: Mapping[str, Feature], *, tokens: Tokens | None = None) -> None:
        self._features = scalar_features(features, texts=tokens is not None)
        self._of: dict[str, _Number | _Category | _Words] = {}
        for name, feature in self._features.items():
            match feature.kind:
                case "number":
                    self._of[name] = _Number(name)
                case "category":
                    self._of[name] = _Category(name)
                case "text":
                    assert tokens is not None
                    self._of[name] = _Words(tokens)

    def __len__(self) -> int:
        """Returns the number of features that have statistics."""
        return len(self._of)

    def mark(self, name: str) -> str | None:
        """Returns the scalar that is 1 where this one is missing."""
        return self._features[name].missing

    def add(self, scalars: Scalars, chosen: NDArray[np.bool_]) -> None:
        """Takes in the chosen examples of a batch, of those features that are in it."""
        for name, summary in self._of.items():
            if name not in scalars:
                continue
            known = _known(scalars, self.mark(name), chosen)
            summary.add(scalars[name].filter(pa.array(known)))
            summary.num_missing += int(chosen.sum() - known.sum())

    def result(self) -> dict[str, FeatureStatistics]:
        """Returns the statistics by feature."""
        return {name: summary.result() for name, summary in self._of.items()}


def _quantiles(
    chosen: Mapping[Path, NDArray[np.bool_]], name: str, mark: str | None, num_known: int
) -> dict[str, float]:
    numbers, filled = np.empty(num_known, np.float64), 0
    for scalars, mask in _batches(chosen, _with_mark(name, mark)):
        some = scalars[name].filter(pa.array(_known(scalars, mark, mask)))
        numbers[filled : filled + len(some)] = some.to_numpy(zero_copy_only=False)
        filled += len(some)
    assert filled == num_known
    cuts = np.quantile(numbers, QUANTILES, overwrite_input=True)
    return {f"{share:g}": float(cut) for share, cut in zip(QUANTILES, cuts, strict=True)}


def _known(scalars: Scalars, mark: str | None, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return chosen if mark is None else chosen & (scalars[mark].to_numpy() == 0)


def _with_mark(name: str, mark: str | None) -> list[str]:
    return [name] if mark is None else [name, mark]


def _batches(
    chosen: Mapping[Path, NDArray[np.bool_]], names: list[str], *, by_group: bool = False
) -> Iterator[tuple[Scalars, NDArray[np.bool_]]]:
    """Yields these columns with what is chosen of them, as the source gave them or else 65,536 rows at once."""
    for path, mask in chosen.items():
        start = 0
        # By itself it would read all of the columns ahead.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=READ_BUFFER_BYTES) as file:
            groups = range(file.num_row_groups)
            for some in [[group] for group in groups] if by_group else [list(groups)]:
                for batch in file.iter_batches(row_groups=some, columns=names):
                    scalars = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield scalars, mask[start : start + batch.num_rows]
                    start += batch.num_rows


def _kinds(*, texts: bool) -> set[str]:
    return _KINDS | {"text"} if texts else _KINDS


def _images(features: Mapping[str, Feature]) -> list[str]:
    return [name for name, feature in features.items() if feature.kind == "image"]


def _pixels(features: Mapping[str, Feature]) -> list[str]:
    """Returns the tensors that may be pixels."""
    return [
        n
        for n, feature in features.items()
        if feature.kind == "tensor" and feature.dtype == "uint8" and 0 not in feature.shape
    ]


def _brightness(pixels: NDArray[np.generic]) -> NDArray[np.float64]:
    """Returns the mean of at most MAX_PIXELS values of each of [n, ...], spread evenly, so that it costs little."""
    flat = pixels.reshape(len(pixels), -1)
    places = np.linspace(0, flat.shape[1] - 1, min(flat.shape[1], MAX_PIXELS)).round().astype(np.int64)
    return np.asarray(flat.take(places, axis=1).mean(axis=1, dtype=np.float64))


def _learned(features: Mapping[str, Feature]) -> list[tuple[str, Feature]]:
    """Returns the label if it is numbers, [n, num_numbers]."""
    return [(n, feature) for n, feature in features.items() if feature.kind == "label" and feature.dtype[:5] == "float"]


def _size(encoded: bytes) -> tuple[int, int]:
    """Returns width and height of an encoded image, from its header."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as image:
        return image.size


class _Number:
    """Count, mean, sum of squared deviations and histogram so far."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.num_missing = self._count = 0
        self._mean = self._squares = 0.0
        self._min, self._max = np.inf, -np.inf
        self._histogram = Histogram()

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
        self._histogram = merged(self._histogram, histogram_of(numbers))

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
            histogram=self._histogram,
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


class _Words:
    """Counts of the words so far."""

    def __init__(self, tokens: Tokens) -> None:
        self.num_missing = 0
        self._counts = WordCounts(tokens)

    def add(self, values: pa.Array) -> None:
        for text in values.to_pylist():
            self._counts.add(text)

    def result(self) -> FeatureStatistics:
        return self._counts.result(num_missing=self.num_missing)
