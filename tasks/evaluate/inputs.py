"""The inputs that evaluation keeps: a few examples as they are stored, in arrays that need no pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INPUT, _LENGTH = "input/", "length/"


def pack_inputs(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns what to write with np.savez: `input/<feature>`, [n, ...].

    Strings become [n, longest] uint8, padded with 0, and their lengths `length/<feature>`, [n] int64: numpy's own
    fixed-width strings lose the zero bytes at the end of an image.
    """
    packed: dict[str, NDArray[Any]] = {}
    for name, values in inputs.items():
        if values.dtype != object:
            packed[_INPUT + name] = values
            continue
        lengths = np.array([len(value) for value in values], np.int64)
        padded = b"".join(value.ljust(lengths.max(initial=0), b"\0") for value in values)
        packed[_INPUT + name] = np.frombuffer(padded, np.uint8).reshape(len(values), -1)
        packed[_LENGTH + name] = lengths
    return packed


def read_inputs(path: Path) -> dict[str, NDArray[Any]]:
    """Returns {feature: [n, ...]} of a file that holds what `pack_inputs` gave; strings as bytes in an object array."""
    with np.load(path, allow_pickle=False) as file:
        found = {name.removeprefix(_INPUT): file[name] for name in file.files if name.startswith(_INPUT)}
        for name, values in found.items():
            if _LENGTH + name in file.files:
                strings = [row[:length].tobytes() for row, length in zip(values, file[_LENGTH + name], strict=True)]
                found[name] = np.array(strings, object)
    return found
