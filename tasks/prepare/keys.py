"""Keys: what decides the split and the place of an example, whatever else the source holds and in whatever order."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def hash_keys(keys: Iterable[str], seed: int) -> NDArray[np.uint64]:
    """Returns two independent hashes of each key, [n, 2] uint64: equal for equal keys and seeds, otherwise random."""
    salted = blake2b(digest_size=16, key=seed.to_bytes(16, "little"))
    return np.frombuffer(b"".join([_digest(salted, key) for key in keys]), "<u8").astype(np.uint64).reshape(-1, 2)


def _digest(salted: blake2b, key: str) -> bytes:
    hashed = salted.copy()  # which takes half the time of a new one
    hashed.update(key.encode("utf-8", "surrogateescape"))
    return hashed.digest()
