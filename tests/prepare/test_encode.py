"""The encoder: byte for byte what TensorFlow serializes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.prepare.encode import Value, encode_example

Values = dict[str, Value]


def _message(values: Values) -> tf.train.Example:
    return tf.train.Example(
        features=tf.train.Features(feature={name: _feature(value) for name, value in values.items()})
    )


def _feature(value: Value) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, np.ndarray):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"image": bytes(range(64)), "label": [9], "id": [1796]},
        {"z": [1], "a": b"", "B": [], "é": [0], "b" * 300: b"y" * 20_000},
        {"\U0001f600": [1], "\uffff": [2]},  # in the order of UTF-8, not of UTF-16
        {"": [7]},
        {"floats": np.array([0, -0.0, 1.5, 3e38, np.inf], np.float32), "empty": np.array([], np.float32), "no": []},
        {"edges": [0, -1, 127, 128, 2**63 - 1, -(2**63)]},
    ],
)
def test_example_equals_tensorflows_serialization(values: Values) -> None:
    assert encode_example(values) == _message(values).SerializeToString(deterministic=True)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=200),
        st.binary(max_size=300)
        | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)
        | st.lists(st.floats(allow_nan=False, width=32)).map(lambda values: np.array(values, np.float32)),
    )
)
def test_any_example_is_read_back_exactly_and_equals_tensorflows_bytes(values: Values) -> None:
    encoded, message = encode_example(values), _message(values)
    assert tf.train.Example.FromString(encoded) == message
    if not any(name.startswith(other) for name in values for other in values if name != other):
        assert encoded == message.SerializeToString(deterministic=True)
