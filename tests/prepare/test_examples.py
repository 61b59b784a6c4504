"""Examples: what numpy writes in chunks is what the plain encoder gives one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.prepare import examples as examples_module
from tasks.prepare.examples import Examples
from tasks.prepare.frame import frame
from tasks.prepare.manifest import Feature

# Numbers at the edges of every length that a varint can have.
INT64 = (
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])
    | st.integers(0, 63).map(lambda bits: 2**bits - 1)
    | (st.integers(0, 62).map(lambda bits: 2**bits))
)


def _examples(**columns: NDArray[np.generic]) -> Examples:
    features = {
        name: Feature(shape=column.shape[1:], dtype=column.dtype.name, storage=storage)
        for name, column in columns.items()
        for storage in ["raw_bytes" if name.startswith("raw") else "int64_list"]
    }
    return Examples(columns, features, inputs=(), target="label", id="id", label_map=())


def _frames(examples: Examples, rows: NDArray[np.int64]) -> list[bytes]:
    return [framed.tobytes() for chunk in examples.frames(rows) for framed in chunk]


@settings(deadline=None)
@given(data=st.data(), num_examples=st.integers(1, 30), length=st.integers(0, 4))
def test_frames_equal_those_of_the_plain_encoder_in_the_order_of_the_rows(
    data: st.DataObject, num_examples: int, length: int
) -> None:
    def integers(*shape: int) -> NDArray[np.int64]:
        size = int(np.prod(shape))
        return np.array(data.draw(st.lists(INT64, min_size=size, max_size=size)), np.int64).reshape(shape)

    examples = _examples(
        raw_image=np.arange(num_examples * 12, dtype=np.uint8).reshape(-1, 2, 3, 2),
        raw_wide=integers(num_examples, 2),
        label=integers(num_examples),
        id=np.arange(num_examples) * 50,
        many=integers(num_examples, length),
    )
    rows = np.array(data.draw(st.permutations(range(num_examples))))
    assert _frames(examples, rows) == [frame(examples.encode(row)) for row in rows]


def test_columns_that_are_not_contiguous_or_native_are_stored_alike() -> None:
    plain = np.arange(300, dtype=np.int64).reshape(50, 6)
    expected = _frames(_examples(raw=plain), np.arange(50))
    assert _frames(_examples(raw=np.asfortranarray(plain).astype(">i8")), np.arange(50)) == expected
    assert _frames(_examples(raw=np.repeat(plain, 2, axis=1)[:, ::2]), np.arange(50)) == expected


def test_chunks_cut_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = _examples(raw=np.arange(1000, dtype=np.uint8).reshape(-1, 10), id=np.arange(100) * 3)
    whole = _frames(examples, np.arange(100))
    for chunk_bytes in (1, 100, 1000):
        monkeypatch.setattr(examples_module, "CHUNK_BYTES", chunk_bytes)
        assert _frames(examples, np.arange(100)) == whole
