"""Batches to frames: what numpy writes in chunks is what the plain encoder gives one by one."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.prepare import batches
from tasks.prepare.batches import encode_frames
from tasks.prepare.encode import Value, encode_example
from tasks.prepare.frame import frame
from tasks.prepare.manifest import Feature
from tasks.prepare.source import Column
from tests.prepare.framed import cut

# Numbers at the edges of every length that a varint can have.
INT64 = (
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
    | st.integers(0, 63).map(lambda bits: 2**bits - 1)
    | (st.integers(0, 62).map(lambda bits: 2**bits))
)


def _feature(name: str, column: Column) -> Feature:
    if not isinstance(column, np.ndarray):
        return Feature(kind="text", shape=(), dtype="string", storage="bytes_list")
    storage: Any = {"i": "int64_list", "f": "float_list"}.get(column.dtype.kind, "raw_bytes")
    storage = "raw_bytes" if name.startswith("raw") else storage
    return Feature(kind="tensor", shape=column.shape[1:], dtype=column.dtype.name, storage=storage)


def _frames(columns: Mapping[str, Column]) -> list[bytes]:
    features = {name: _feature(name, column) for name, column in columns.items()}
    return [framed for chunk in encode_frames(columns, features) for framed in cut(chunk)]


def _plain(columns: Mapping[str, Column]) -> list[bytes]:
    def value(name: str, row: int) -> Value:
        stored = columns[name][row]
        if isinstance(stored, bytes):
            return stored
        if name.startswith("raw"):
            return stored.tobytes()
        return stored.ravel() if stored.dtype.kind == "f" else stored.ravel().tolist()

    num_examples = len(next(iter(columns.values())))
    return [frame(encode_example({name: value(name, row) for name in columns})) for row in range(num_examples)]


@settings(deadline=None)
@given(data=st.data(), num_examples=st.integers(1, 30), length=st.integers(0, 4), with_bytes=st.booleans())
def test_frames_equal_those_of_the_plain_encoder(
    data: st.DataObject, num_examples: int, length: int, with_bytes: bool
) -> None:
    def integers(*shape: int) -> NDArray[np.int64]:
        size = int(np.prod(shape))
        return np.array(data.draw(st.lists(INT64, min_size=size, max_size=size)), np.int64).reshape(shape)

    columns: dict[str, Column] = {
        "raw_image": np.arange(num_examples * 12, dtype=np.uint8).reshape(-1, 2, 3, 2),
        "raw_wide": integers(num_examples, 2),
        "raw_double": integers(num_examples).astype(np.float64),
        "label": integers(num_examples),
        "id": np.arange(num_examples) * 50,
        "many": integers(num_examples, length),
        "price": integers(num_examples, 1).astype(np.float32),
        "floats": integers(num_examples, length).astype(np.float32),
    }
    if with_bytes:
        sizes = data.draw(st.lists(st.integers(0, 300), min_size=num_examples, max_size=num_examples))
        columns["text"] = [b"x" * size for size in sizes]
    assert _frames(columns) == _plain(columns)


def test_float_list_is_little_endian_float32() -> None:
    (framed,) = _frames({"price": np.array([1.5], np.float32)})
    assert struct.pack("<f", 1.5) in framed


def test_columns_that_are_not_contiguous_or_native_are_stored_alike() -> None:
    plain = np.arange(300, dtype=np.int64).reshape(50, 6)
    expected = _frames({"raw": plain})
    assert _frames({"raw": np.asfortranarray(plain)}) == expected
    assert _frames({"raw": np.repeat(plain, 2, axis=1)[:, ::2]}) == expected
    big_endian = Feature(kind="tensor", shape=(6,), dtype="int64", storage="raw_bytes")
    (chunk,) = encode_frames({"raw": plain.astype(">i8")}, {"raw": big_endian})
    assert cut(chunk) == expected


@pytest.mark.parametrize("text", [{}, {"text": [b"a" * (row % 7) for row in range(100)]}])
def test_chunks_cut_nothing(monkeypatch: pytest.MonkeyPatch, text: dict[str, Column]) -> None:
    columns: dict[str, Column] = {
        "raw": np.arange(1000).astype(np.uint8).reshape(-1, 10),
        "id": np.arange(100) * 3,
        **text,
    }
    whole = _frames(columns)
    for chunk_bytes in (1, 100, 1000):
        monkeypatch.setattr(batches, "CHUNK_BYTES", chunk_bytes)
        assert _frames(columns) == whole
