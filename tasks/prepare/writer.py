"""The shard writer: frames into a TFRecord file, measured while they are written."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path

from tasks.prepare.manifest import OFFSET_STRIDE, Shard


def write_shard(path: Path, chunks: Iterable[Sequence[bytes | memoryview]]) -> Shard:
    """Writes chunks of frames to one TFRecord file and returns what the manifest says of it.

    The caller makes it durable.
    """
    sha256 = hashlib.sha256()
    starts = [0]
    with open(path, "wb") as file:
        for frames in chunks:
            data = b"".join(frames)
            file.write(data)
            sha256.update(data)
            starts.extend(accumulate(map(len, frames), initial=starts.pop()))
    size_bytes = starts.pop()
    return Shard(
        file=path.name,
        num_examples=len(starts),
        size_bytes=size_bytes,
        sha256=sha256.hexdigest(),
        offsets=tuple(starts[::OFFSET_STRIDE]),
    )
