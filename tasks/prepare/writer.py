"""The shard writer: frames into a TFRecord file, measured while they are written."""

import hashlib
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

from tasks.prepare.batches import Frames
from tasks.prepare.manifest import OFFSET_STRIDE, Shard


def write_shard(path: Path, chunks: Iterable[Frames]) -> Shard:
    """Writes chunks of frames to one TFRecord file and returns what the manifest says of it.

    The caller makes it durable.
    """
    sha256 = hashlib.sha256()
    starts = [0]
    with open(path, "wb") as file:
        for frames in chunks:
            file.write(frames.data)
            sha256.update(frames.data)
            starts.extend(accumulate(frames.sizes, initial=starts.pop()))
    size_bytes = starts.pop()
    return Shard(
        file=path.name,
        num_examples=len(starts),
        size_bytes=size_bytes,
        sha256=sha256.hexdigest(),
        offsets=tuple(starts[::OFFSET_STRIDE]),
    )
