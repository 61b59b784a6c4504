"""Examples: what a source holds, in columns, before it becomes shards."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.prepare.encode import encode_example
from tasks.prepare.manifest import Feature

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
        return encode_example({name: _stored(self.columns[name][row], self.features[name]) for name in self.columns})


def _stored(value: NDArray[np.generic], feature: Feature) -> bytes | list[int]:
    assert value.shape == feature.shape
    if feature.storage == "raw_bytes":
        # decode_raw reads little-endian, whatever machine wrote it.
        return value.astype(np.dtype(feature.dtype).newbyteorder("<")).tobytes()
    numbers: list[int] = value.ravel().tolist()
    return numbers
