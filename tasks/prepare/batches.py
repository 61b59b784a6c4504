"""Batches to frames: the columns of a batch as the TFRecord frames of its examples."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.encode import encode_example, entry_head, example_head, find_payloads, varint_lengths, varints
from tasks.prepare.frame import HEAD_BYTES, TAIL_BYTES, frame, frame_all, seal
from tasks.prepare.manifest import Feature
from tasks.prepare.source import Column

CHUNK_BYTES = 2**21  # framed, gathered and written at once: smaller ones cost calls, larger ones leave the cache


class Frames(NamedTuple):
    """Some TFRecord frames, one after another."""

    data: bytes | memoryview
    sizes: NDArray[np.int32]
    """Bytes of each frame, [num_frames]."""


def encode_frames(columns: Mapping[str, Column], features: Mapping[str, Feature]) -> Iterator[Frames]:
    """Yields the TFRecord frames of the examples in these columns, in their order, about CHUNK_BYTES at a time."""
    num_examples = len(next(iter(columns.values())))
    num_rows = _rows_of(columns, features)
    any_size = any(feature.storage == "bytes_list" for feature in features.values())
    encode = _frames_of_any_size if any_size else _frames_of_templates
    for start in range(0, num_examples, num_rows):
        chunk = {name: columns[name][start : start + num_rows] for name in features}
        yield encode(chunk, features)


def _rows_of(columns: Mapping[str, Column], features: Mapping[str, Feature]) -> int:
    """Returns how many examples make up about CHUNK_BYTES, if the others are like the first."""
    first = {name: columns[name][0] for name in features}
    size = sum(len(value) if isinstance(value, bytes) else value.nbytes for value in first.values())
    return max(1, CHUNK_BYTES // (size + 16 * len(features)))


def _frames_of_templates(columns: Mapping[str, Column], features: Mapping[str, Feature]) -> Frames:
    # Examples whose values take equally many bytes differ in nothing else: numpy fills one template for all.
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    kinds = _payload_bytes(arrays, features)
    if (kinds == kinds[0]).all():
        frames = _fill(tuple(kinds[0].tolist()), arrays, features)
        return Frames(frames.data.cast("B"), np.full(len(frames), frames.shape[1], np.int32))
    alike: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, kind in enumerate(map(tuple, kinds.tolist())):
        alike[kind].append(place)
    chunk: dict[int, NDArray[np.uint8]] = {}
    for kind, places in alike.items():
        some = {name: array[places] for name, array in arrays.items()}
        chunk.update(zip(places, _fill(kind, some, features), strict=True))
    ordered = [chunk[place].data for place in range(len(chunk))]
    return Frames(b"".join(ordered), np.fromiter(map(len, ordered), np.int32))


def _payload_bytes(arrays: Mapping[str, NDArray[np.generic]], features: Mapping[str, Feature]) -> NDArray[np.int64]:
    """Returns how many bytes each example takes in each feature, [num_examples, num_features]."""
    num_examples = len(next(iter(arrays.values())))
    sizes = np.empty((num_examples, len(features)), np.int64)
    for column, (name, feature) in enumerate(features.items()):
        if feature.storage == "int64_list":
            values = arrays[name].astype(np.int64, copy=False)
            sizes[:, column] = varint_lengths(values).sum(axis=tuple(range(1, values.ndim)))
        else:
            sizes[:, column] = _fixed_bytes(feature)
    return sizes


def _fill(
    kind: tuple[int, ...], arrays: Mapping[str, NDArray[np.generic]], features: Mapping[str, Feature]
) -> NDArray[np.uint8]:
    """Returns the frames of examples of equal payload bytes, [num_examples, size of a frame] uint8."""
    num_examples = len(next(iter(arrays.values())))
    storages = (feature.storage for feature in features.values())
    template, places = _template(tuple(zip(features, storages, kind, strict=True)))
    frames = np.empty((num_examples, len(template)), np.uint8)
    wire, done = np.frombuffer(template, np.uint8), 0
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        frames[:, done : place.start] = wire[done : place.start]
        payloads = frames[:, place]
        payloads[:] = _payloads(arrays[name], features[name]).reshape(payloads.shape)
        done = place.stop
    seal(frames)
    return frames


@lru_cache(maxsize=1024)
def _template(kind: tuple[tuple[str, str, int], ...]) -> tuple[bytes, dict[str, slice]]:
    """Returns a frame of features (name, storage, payload bytes), and where in it the payloads stand."""
    values = {name: _zeros(storage, size) for name, storage, size in kind}
    places = {
        name: slice(HEAD_BYTES + place.start, HEAD_BYTES + place.stop) for name, place in find_payloads(values).items()
    }
    return frame(encode_example(values)), places


def _zeros(storage: str, size_bytes: int) -> bytes | list[int] | NDArray[np.float32]:
    """Returns a value whose payload takes so many bytes."""
    if storage == "int64_list":
        return [0] * size_bytes  # a 0 takes one byte
    return np.zeros(size_bytes // 4, np.float32) if storage == "float_list" else bytes(size_bytes)


def _frames_of_any_size(columns: Mapping[str, Column], features: Mapping[str, Feature]) -> Frames:
    entries = [_entries(name, columns[name], features[name]) for name in sorted(features)]
    bodies = [b"".join(parts) for parts in zip(*entries, strict=True)]
    records = [example_head(len(body)) + body for body in bodies]
    sizes = HEAD_BYTES + np.fromiter(map(len, records), np.int32) + TAIL_BYTES
    return Frames(b"".join(frame_all(records)), sizes)


def _entries(name: str, column: Column, feature: Feature) -> list[bytes]:
    """Returns each example's entry of one feature in the map of features."""
    if feature.storage == "bytes_list":
        payloads = list(column)
    elif feature.storage == "int64_list":
        numbers = np.asarray(column).astype(np.int64, copy=False)
        stops = np.cumsum(varint_lengths(numbers).sum(axis=tuple(range(1, numbers.ndim)))).tolist()
        flat = varints(numbers).tobytes()
        payloads = [flat[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
    else:
        size, flat = _fixed_bytes(feature), _payloads(np.asarray(column), feature).tobytes()
        payloads = [flat[row * size : (row + 1) * size] for row in range(len(column))]
    heads = {size: entry_head(name, feature.storage, size) for size in set(map(len, payloads))}
    return [heads[len(payload)] + payload for payload in payloads]


def _payloads(values: NDArray[np.generic], feature: Feature) -> NDArray[np.uint8]:
    """Returns the bytes of the values, one value after the other."""
    if feature.storage == "int64_list":
        return varints(values.astype(np.int64, copy=False))
    # decode_raw and protobuf read little-endian, whatever machine wrote it.
    ordered = values.astype(np.dtype(feature.dtype).newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)


def _fixed_bytes(feature: Feature) -> int:
    """Returns how many bytes every value of a feature takes that is stored as it lies in memory."""
    return math.prod(size for size in feature.shape if size is not None) * np.dtype(feature.dtype).itemsize
