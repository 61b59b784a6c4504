"""Examples: what a source holds, in columns, before it becomes shards."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.encode import encode_example, find_payloads, varint_lengths, varints
from tasks.prepare.frame import HEAD_BYTES, frame, seal
from tasks.prepare.manifest import Feature

CHUNK_BYTES = 2**19  # framed at once: larger ones leave the cache, and malloc maps fresh pages for their arrays
LABEL = Feature(shape=(), dtype="int64", storage="int64_list")
ID = Feature(shape=(), dtype="int64", storage="int64_list")


@dataclass(frozen=True)
class Examples:
    """The examples of a source: one array [num_examples, *shape] a feature, and what the features are."""

    columns: dict[str, NDArray[np.generic]]
    features: dict[str, Feature]
    inputs: tuple[str, ...]
    target: str
    id: str
    label_map: tuple[str, ...]

    @property
    def labels(self) -> NDArray[np.int64]:
        """Class of each example, [num_examples] int64, an index into `label_map`."""
        return self.columns[self.target].astype(np.int64)

    def encode(self, row: int) -> bytes:
        """Returns the example of a row as a serialized tf.train.Example."""
        return encode_example(self._values(row))

    def frames(self, rows: NDArray[np.int64]) -> Iterator[list[NDArray[np.uint8]]]:
        """Yields the TFRecord frames of the rows' examples, in the order of the rows, about CHUNK_BYTES at a time."""
        num_rows = max(1, CHUNK_BYTES // len(self.encode(rows[0])))
        for start in range(0, len(rows), num_rows):
            yield self._chunk(rows[start : start + num_rows])

    def _chunk(self, rows: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
        # Examples whose values take equally many bytes differ in nothing else: numpy fills one template for all.
        alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, kind in enumerate(map(tuple, self._payload_bytes(rows).tolist())):
            alike[kind].append(place)
        chunk: dict[int, NDArray[np.uint8]] = {}
        for kind, places in alike.items():
            chunk.update(zip(places, self._fill(kind, rows[places]), strict=True))
        return [chunk[place] for place in range(len(rows))]

    def _payload_bytes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns how many bytes each example takes in each feature, [len(rows), num_features]."""
        sizes = np.empty((len(rows), len(self.features)), np.int64)
        for column, (name, feature) in enumerate(self.features.items()):
            if feature.storage == "raw_bytes":
                sizes[:, column] = math.prod(feature.shape) * np.dtype(feature.dtype).itemsize
            else:
                values = self.columns[name][rows].astype(np.int64)
                sizes[:, column] = varint_lengths(values).sum(axis=tuple(range(1, values.ndim)))
        return sizes

    def _fill(self, kind: tuple[int, ...], rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Returns the frames of examples of equal payload bytes, [len(rows), size of a frame] uint8."""
        storages = (feature.storage for feature in self.features.values())
        template, places = _template(tuple(zip(self.features, storages, kind, strict=True)))
        frames = np.empty((len(rows), len(template)), np.uint8)
        frames[:] = np.frombuffer(template, np.uint8)
        for name, place in places.items():
            payloads = frames[:, place]
            payloads[:] = _payloads(self.columns[name][rows], self.features[name]).reshape(payloads.shape)
        seal(frames)
        return frames

    def _values(self, row: int) -> dict[str, bytes | list[int]]:
        return {name: _stored(self.columns[name][row], feature) for name, feature in self.features.items()}


@lru_cache(maxsize=1024)
def _template(kind: tuple[tuple[str, str, int], ...]) -> tuple[bytes, dict[str, slice]]:
    """Returns a frame of features (name, storage, payload bytes), and where in it the payloads stand."""
    values: dict[str, bytes | list[int]] = {
        name: bytes(size) if storage == "raw_bytes" else [0] * size  # a 0 takes one byte
        for name, storage, size in kind
    }
    places = {
        name: slice(HEAD_BYTES + place.start, HEAD_BYTES + place.stop) for name, place in find_payloads(values).items()
    }
    return frame(encode_example(values)), places


def _stored(value: NDArray[np.generic], feature: Feature) -> bytes | list[int]:
    assert value.shape == feature.shape
    if feature.storage == "raw_bytes":
        return _little_endian(value, feature).tobytes()
    numbers: list[int] = value.ravel().tolist()
    return numbers


def _payloads(values: NDArray[np.generic], feature: Feature) -> NDArray[np.uint8]:
    """Returns the bytes of the values, one value after the other."""
    if feature.storage == "raw_bytes":
        return np.ascontiguousarray(_little_endian(values, feature)).reshape(-1).view(np.uint8)
    return varints(values.astype(np.int64))


def _little_endian(values: NDArray[np.generic], feature: Feature) -> NDArray[np.generic]:
    # decode_raw reads little-endian, whatever machine wrote it.
    return values.astype(np.dtype(feature.dtype).newbyteorder("<"), copy=False)
