"""The encoder: tf.train.Example in protobuf's wire format, without TensorFlow.

Formats: tensorflow/core/example/{example,feature}.proto; protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Field numbers: Example.features, Features.feature (a map), the map's entries, the kinds of Feature, their value.
_FEATURES = 1
_FEATURE = 1
_KEY, _VALUE = 1, 2
_LISTS = {"bytes_list": 1, "raw_bytes": 1, "float_list": 2, "int64_list": 3}  # by storage
_LIST_VALUE = 1

Value = bytes | Sequence[int] | NDArray[np.float32]
"""A bytes_list of one value, an int64_list, a float_list."""

_SHIFTS = 7 * np.arange(10, dtype=np.uint64)  # an int64 takes at most 10 bytes
_FIRST_OF_LENGTH = np.uint64(1) << _SHIFTS[1:]
"""The smallest number that takes 2, 3, ... 10 bytes."""


def encode_example(values: Mapping[str, Value]) -> bytes:
    """Returns a serialized tf.train.Example.

    Features stand in the order of their names, as in TensorFlow's own deterministic serialization; only where one name
    begins another does protobuf's Python put the longer first, and its C++ the shorter, as here.
    """
    return _field(_FEATURES, b"".join(_entries(values)))


def find_payloads(values: Mapping[str, Value]) -> dict[str, slice]:
    """Returns where in `encode_example(values)` each feature's own bytes stand, which are all that is not wire format.

    Values that take equally many bytes have equal places and equal wire format.
    """
    entries = _entries(values)
    end = len(_field(_FEATURES, b"".join(entries))) - sum(map(len, entries))
    found = {}
    for name, entry in zip(sorted(values), entries, strict=True):
        end += len(entry)
        found[name] = slice(end - len(_payload(values[name])), end)  # what comes last in an entry is the payload
    return found


@lru_cache(maxsize=65536)
def example_head(size_bytes: int) -> bytes:
    """Returns what stands before the entries of an example that take so many bytes together."""
    return _head(_FEATURES, size_bytes)


@lru_cache(maxsize=65536)
def entry_head(name: str, storage: str, payload_bytes: int) -> bytes:
    """Returns what stands before the payload of a feature in its entry; the entry ends with the payload."""
    head = b"" if storage in {"float_list", "int64_list"} and not payload_bytes else _head(_LIST_VALUE, payload_bytes)
    # The heads from the innermost outwards; each says how much follows it.
    head = _head(_LISTS[storage], len(head) + payload_bytes) + head
    head = _head(_VALUE, len(head) + payload_bytes) + head
    head = _field(_KEY, name.encode()) + head
    return _head(_FEATURE, len(head) + payload_bytes) + head


def varint_lengths(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how many bytes each number takes in an int64_list, 1 to 10; same shape."""
    return 1 + np.searchsorted(_FIRST_OF_LENGTH, numbers.astype(np.uint64), side="right")


def varints(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns all the numbers, in C order, as they are packed in an int64_list, [sum of varint_lengths]."""
    lengths = varint_lengths(numbers)[..., None]
    place = np.arange(lengths.max(initial=1))
    groups = (numbers.astype(np.uint64)[..., None] >> _SHIFTS[place] & np.uint64(0x7F)).astype(np.uint8)
    groups[place < lengths - 1] |= 0x80
    return groups[place < lengths]


def _entries(values: Mapping[str, Value]) -> list[bytes]:
    payloads = {name: _payload(values[name]) for name in sorted(values)}
    return [entry_head(name, _storage(values[name]), len(payload)) + payload for name, payload in payloads.items()]


def _storage(value: Value) -> str:
    if isinstance(value, bytes):
        return "bytes_list"
    return "float_list" if isinstance(value, np.ndarray) else "int64_list"


def _payload(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.astype("<f4").tobytes()
    return b"".join(_varint(number % 2**64) for number in value)  # a negative int64 is its two's complement


def _field(number: int, payload: bytes) -> bytes:
    """Returns a length-delimited field."""
    return _head(number, len(payload)) + payload


def _head(number: int, size_bytes: int) -> bytes:
    """Returns the tag of a length-delimited field (wire type 2) and its length."""
    return _varint(number << 3 | 2) + _varint(size_bytes)


def _varint(number: int) -> bytes:
    """Returns an unsigned number in groups of 7 bits, lowest first, the high bit set on all but the last."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
