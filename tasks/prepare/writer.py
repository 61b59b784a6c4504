"""The shard writer: frames into a TFRecord file, measured while they are written."""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.prepare.batches import Frames
from tasks.prepare.manifest import OFFSET_STRIDE, Shard

Compression = Literal["none", "gzip", "zlib"]
_Compress = Callable[[bytes | memoryview | None], bytes | memoryview]  # None: no more comes


def write_shard(path: Path, chunks: Iterable[Frames], *, compression: Compression = "none") -> Shard:
    """Writes chunks of frames to one TFRecord file and returns what the manifest says of it.

    The caller makes it durable.
    """
    sha256 = hashlib.sha256()
    offsets: list[int] = []
    num_examples = record_bytes = 0
    compress = _COMPRESSORS[compression]()
    size_bytes = 0
    with open(path, "wb") as file:
        for frames in chunks:
            data = compress(frames.data)
            file.write(data)
            sha256.update(data)
            size_bytes += len(data)
            starts = record_bytes + np.cumsum(frames.sizes) - frames.sizes
            offsets += starts[-num_examples % OFFSET_STRIDE :: OFFSET_STRIDE].tolist()
            num_examples += len(starts)
            record_bytes += len(frames.data)
        end = compress(None)
        file.write(end)
        sha256.update(end)
    return Shard(
        file=path.name,
        num_examples=num_examples,
        size_bytes=size_bytes + len(end),
        record_bytes=record_bytes,
        sha256=sha256.hexdigest(),
        offsets=tuple(offsets),
    )


def _plain() -> _Compress:
    return lambda data: b"" if data is None else data


def _deflate(window_bits: int) -> _Compress:
    # Its gzip header has neither name nor time: the same frames give the same bytes.
    compressor = zlib.compressobj(wbits=window_bits)
    return lambda data: compressor.flush() if data is None else compressor.compress(data)


_COMPRESSORS: dict[Compression, Callable[[], _Compress]] = {
    "none": _plain,
    "gzip": lambda: _deflate(zlib.MAX_WBITS + 16),
    "zlib": lambda: _deflate(zlib.MAX_WBITS),
}
