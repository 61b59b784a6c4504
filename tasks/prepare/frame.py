"""The TFRecord frame: length, CRC of the length, record, CRC of the record.

Format: tensorflow/core/lib/io/record_writer.h; masked CRC-32C: tensorflow/core/lib/hash/crc32c.h, Mask().
"""

from collections.abc import Sequence

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

HEAD_BYTES = 12  # length 8, its CRC 4
TAIL_BYTES = 4  # the record's CRC


def frame(record: bytes) -> bytes:
    """Returns the record as it stands in a TFRecord file."""
    return b"".join(frame_all([record]))


def frame_all(records: Sequence[bytes]) -> list[bytes]:
    """Returns the records as they stand in a TFRecord file, each in three pieces: head, record, CRC."""
    lengths = np.fromiter(map(len, records), "<u8", len(records))[:, None].view(np.uint8)
    heads = np.concatenate([lengths, _masked_crcs(lengths)], axis=1).tobytes()
    tails = _masked_crcs(records).tobytes()
    pieces = [b""] * (3 * len(records))
    pieces[0::3] = [heads[start : start + HEAD_BYTES] for start in range(0, len(heads), HEAD_BYTES)]
    pieces[1::3] = records
    pieces[2::3] = [tails[start : start + TAIL_BYTES] for start in range(0, len(tails), TAIL_BYTES)]
    return pieces


def seal(frames: NDArray[np.uint8]) -> None:
    """Sets the record's CRC in each of the frames, [num_records, size of a frame], after the records were changed."""
    frames[:, -TAIL_BYTES:] = _masked_crcs(frames[:, HEAD_BYTES:-TAIL_BYTES])


def _masked_crcs(records: Sequence[bytes] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the CRC of each record, rotated right by 15 bits plus a constant, [num_records, 4] uint8."""
    crcs = np.fromiter(map(crc32c, records), np.uint32, len(records))
    masked = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(0xA282EAD8)
    return masked.astype("<u4")[:, None].view(np.uint8)
