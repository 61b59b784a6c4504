"""Leaks: examples of a split whose inputs stand in the training split too."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.feed.records import stored_batches
from tasks.feed.signature import feature_names
from tasks.prepare.manifest import ShardManifest

NUM_NAMED = 20  # ids in a report


def find_leaks(directory: Path, manifest: ShardManifest, split: str) -> NDArray[np.int64]:
    """Returns the ids of the examples of a split whose inputs are those of a training example, in storage order.

    They are compared by a hash of their bytes as they are stored, without label and id. Reads both splits once and
    keeps the hashes of the one that is evaluated.
    """
    ids: list[int] = []
    digests: list[bytes] = []
    names = feature_names(manifest)
    for batch in stored_batches(directory, manifest, split, (*names, manifest.id)):
        ids += batch.pop(manifest.id).tolist()
        digests += content_digests(batch)
    unseen = set(digests)
    for batch in stored_batches(directory, manifest, "train", names):
        unseen.difference_update(content_digests(batch))
    return np.array([id for id, digest in zip(ids, digests, strict=True) if digest not in unseen], np.int64)


def content_digests(features: Mapping[str, NDArray[Any]]) -> list[bytes]:
    """Returns a hash of each row of {feature: [b, ...]}, numbers or bytes objects: equal for rows of the same bytes."""
    names = sorted(features)
    numbers = [features[name] for name in names if features[name].dtype != object]
    strings = [features[name].tolist() for name in names if features[name].dtype == object]
    num_rows = len(features[names[0]])
    fixed = [np.ascontiguousarray(each).reshape(num_rows, -1).view(np.uint8) for each in numbers]
    rows = np.concatenate(fixed, axis=1) if fixed else np.zeros((num_rows, 0), np.uint8)
    found = []
    for place, row in enumerate(rows):
        digest = blake2b(row.tobytes(), digest_size=16)
        for column in strings:  # with its length, or 'a', 'bc' would be 'ab', 'c'
            digest.update(len(column[place]).to_bytes(8, "little"))
            digest.update(column[place])
        found.append(digest.digest())
    return found
