"""The TFRecord frame: length, CRC of the length, record, CRC of the record.

Format: tensorflow/core/lib/io/record_writer.h; masked CRC-32C: tensorflow/core/lib/hash/crc32c.h, Mask().
"""

import struct
from collections.abc import Sequence

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

HEAD_BYTES = 12  # length 8, its CRC 4
TAIL_BYTES = 4  # the record's CRC


def frame(record: bytes) -> bytes:
    """Returns the record as it stands in a TFRecord file."""
    length = struct.pack("<Q", len(record))
    return length + _masked_crcs([length]).tobytes() + record + _masked_crcs([record]).tobytes()


def seal(frames: NDArray[np.uint8]) -> None:
    """Sets the record's CRC in each of the frames, [num_records, size of a frame], after the records were changed."""
    frames[:, -TAIL_BYTES:] = _masked_crcs(frames[:, HEAD_BYTES:-TAIL_BYTES])


def _masked_crcs(records: Sequence[bytes] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the CRC of each record, rotated right by 15 bits plus a constant, [num_records, 4] uint8."""
    crcs = np.fromiter(map(crc32c, records), np.uint32, len(records))
    masked = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(0xA282EAD8)
    return masked.astype("<u4")[:, None].view(np.uint8)
