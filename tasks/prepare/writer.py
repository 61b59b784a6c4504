"""The shard writer: records in TFRecord framing, measured while they are written."""

import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c

from tasks.prepare.manifest import OFFSET_STRIDE, Shard

RECORD_OVERHEAD = 16  # bytes a record: length 8, its CRC 4, data's CRC 4; tensorflow/core/lib/io/record_writer.h


def write_shard(path: Path, records: Iterable[bytes]) -> Shard:
    """Writes one TFRecord file and returns what the manifest says of it; the caller makes it durable."""
    sha256 = hashlib.sha256()
    offsets: list[int] = []
    num_examples = size_bytes = 0
    with open(path, "wb") as file:
        for record in records:
            if num_examples % OFFSET_STRIDE == 0:
                offsets.append(size_bytes)
            framed = frame(record)
            file.write(framed)
            sha256.update(framed)
            num_examples += 1
            size_bytes += len(framed)
    return Shard(
        file=path.name,
        num_examples=num_examples,
        size_bytes=size_bytes,
        sha256=sha256.hexdigest(),
        offsets=tuple(offsets),
    )


def frame(record: bytes) -> bytes:
    """Returns the record as it stands in a TFRecord file: length, CRC of the length, record, CRC of the record."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crc(length) + record + _masked_crc(record)


def _masked_crc(data: bytes) -> bytes:
    """Returns CRC-32C rotated right by 15 bits plus a constant: tensorflow/core/lib/hash/crc32c.h, Mask()."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
