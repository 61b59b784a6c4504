"""The shard writer: the file that TensorFlow's own writer makes, and true figures about it."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tasks.files import digest_file
from tasks.prepare.batches import Frames
from tasks.prepare.frame import frame
from tasks.prepare.manifest import OFFSET_STRIDE
from tasks.prepare.writer import Compression, write_shard

RECORDS = [bytes([number % 251]) * (number % 40) for number in range(2 * OFFSET_STRIDE + 3)]
CHUNKS = [
    Frames(b"".join(map(frame, records)), np.array([len(frame(record)) for record in records], np.int32))
    for records in (RECORDS[:100], [], RECORDS[100:])
]


def test_file_equals_that_of_tensorflows_writer(tmp_path: Path) -> None:
    write_shard(tmp_path / "ours", CHUNKS)
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize(("compression", "theirs"), [("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_compressed_file_is_read_by_tensorflow_and_its_bytes_are_repeatable(
    tmp_path: Path, compression: Compression, theirs: str
) -> None:
    shard, again = (write_shard(tmp_path / name, CHUNKS, compression=compression) for name in ("shard", "again"))
    records = tf.data.TFRecordDataset(str(tmp_path / "shard"), theirs).as_numpy_iterator()
    assert list(records) == RECORDS
    assert shard.sha256 == again.sha256 == digest_file(tmp_path / "shard")
    assert shard.size_bytes == (tmp_path / "shard").stat().st_size < shard.record_bytes
    assert shard.record_bytes == sum(len(record) + 16 for record in RECORDS)


def test_counts_sizes_and_digest_are_those_of_the_file(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "shard", CHUNKS)
    assert (shard.file, shard.num_examples) == ("shard", len(RECORDS))
    assert shard.size_bytes == (tmp_path / "shard").stat().st_size
    assert shard.size_bytes == shard.record_bytes == sum(len(record) + 16 for record in RECORDS)
    assert shard.sha256 == digest_file(tmp_path / "shard")


def test_a_record_starts_at_every_offset(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "shard", CHUNKS)
    data = (tmp_path / "shard").read_bytes()
    assert len(shard.offsets) == 3
    for index, offset in enumerate(shard.offsets):
        assert data[offset:].startswith(frame(RECORDS[index * OFFSET_STRIDE]))
