"""The encoder: tf.train.Example in protobuf's wire format, without TensorFlow.

Formats: tensorflow/core/example/{example,feature}.proto; protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Mapping, Sequence

# Field numbers: Example.features, Features.feature (a map), the map's entries, the kinds of Feature, their value.
_FEATURES = 1
_FEATURE = 1
_KEY, _VALUE = 1, 2
_BYTES_LIST, _INT64_LIST = 1, 3
_LIST_VALUE = 1


def encode_example(values: Mapping[str, bytes | Sequence[int]]) -> bytes:
    """Returns a serialized tf.train.Example: a bytes_list of one value for bytes, an int64_list for integers.

    Features stand in the order of their names, as in TensorFlow's own deterministic serialization; only where one name
    begins another does protobuf's Python put the longer first, and its C++ the shorter, as here.
    """
    entries = (
        _field(_FEATURE, _field(_KEY, name.encode()) + _field(_VALUE, _feature(values[name])))
        for name in sorted(values)
    )
    return _field(_FEATURES, b"".join(entries))


def _feature(value: bytes | Sequence[int]) -> bytes:
    if isinstance(value, bytes):
        return _field(_BYTES_LIST, _field(_LIST_VALUE, value))
    packed = b"".join(_varint(number % 2**64) for number in value)  # a negative int64 is its two's complement
    return _field(_INT64_LIST, _field(_LIST_VALUE, packed) if packed else b"")


def _field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited field (wire type 2)."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    """Returns an unsigned number in groups of 7 bits, lowest first, the high bit set on all but the last."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
