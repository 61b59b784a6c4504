"""Keys: what decides the split and the place of an example, whatever else the source holds and in whatever order."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def hash_keys(keys: Iterable[str], seed: int) -> NDArray[np.uint64]:
    """Returns two independent hashes of each key, [n, 2] uint64: equal for equal keys and seeds, otherwise random."""
    salt = seed.to_bytes(16, "little")
    digests = b"".join(
        blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16, key=salt).digest() for key in keys
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64).reshape(-1, 2)
