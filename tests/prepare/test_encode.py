"""The encoder: byte for byte what TensorFlow serializes."""

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.prepare.encode import encode_example

Values = dict[str, bytes | list[int]]


def _message(values: Values) -> tf.train.Example:
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        if isinstance(value, bytes)
        else tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        for name, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"image": bytes(range(64)), "label": [9], "id": [1796]},
        {"z": [1], "a": b"", "B": [], "é": [0], "b" * 300: b"y" * 20_000},
        {"\U0001f600": [1], "\uffff": [2]},  # in the order of UTF-8, not of UTF-16
        {"": [7]},
        {"edges": [0, -1, 127, 128, 2**63 - 1, -(2**63)]},
    ],
)
def test_example_equals_tensorflows_serialization(values: Values) -> None:
    assert encode_example(values) == _message(values).SerializeToString(deterministic=True)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=200), st.binary(max_size=300) | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)
    )
)
def test_any_example_is_read_back_exactly_and_equals_tensorflows_bytes(values: Values) -> None:
    encoded, message = encode_example(values), _message(values)
    assert tf.train.Example.FromString(encoded) == message
    if not any(name.startswith(other) for name in values for other in values if name != other):
        assert encoded == message.SerializeToString(deterministic=True)
