"""The shards bench: one data set written by us, by TensorFlow's own means, by TFDS and by ArrayRecord."""

import importlib.util
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from tasks.bench.arrays import NUM_CLASSES, Images, write_images, write_shards
from tasks.bench.report import BenchReport
from tasks.bench.runner import OURS, examine_host, measure_in_turns, ratios_of, rows_of
from tasks.config import DataConfig

CHUNK_BYTES = 2**20

logger = logging.getLogger("millstream")


def bench_shards(*, num_examples: int, rounds: int) -> BenchReport:
    """Returns what writing `num_examples` of 3 KB costs each side, and a tenth as many of 110 KB.

    Ratios are named after the rival; those of the large examples end in `_110kb`. `crc_write` is no rival but the
    bound: a CRC of each example and nothing but a write.
    """
    host = examine_host(["numpy", "tensorflow", "tensorflow-datasets", "crc32c"])
    logger.info("bench: %d examples of 3 KB, %d of 110 KB, %d rounds", num_examples, num_examples // 10, rounds)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        cases = [
            write_images(Path(folder, "3kb"), num_examples, 3072),
            write_images(Path(folder, "110kb"), num_examples // 10, 110_000),
        ]
        small, large = measure_in_turns(_sides(), cases, rounds=rounds)
    return BenchReport(
        rows=(*rows_of(small, case="3kb"), *rows_of(large, case="110kb")),
        ratios=ratios_of(small) | {f"{side}_110kb": ratio for side, ratio in ratios_of(large).items()},
        host=host,
    )


def write_ours(file: Path) -> None:
    """Writes complete shards: split, shuffled as a whole, with digests, manifest and TFDS metadata, synced."""
    _write_ours(file, DataConfig())


def write_ours_alone(file: Path) -> None:
    """Does the same with one worker."""
    _write_ours(file, DataConfig(num_workers=1))


def _write_ours(file: Path, config: DataConfig) -> None:
    images, labels = _data(file)
    write_shards(file.with_name("ours"), Images(images, labels), config)


def write_naive(file: Path) -> None:
    """Writes one file, in the order of the source, by the loop of TensorFlow's guide."""
    import tensorflow as tf

    def integer(value: int) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    images, labels = _data(file)
    with tf.io.TFRecordWriter(str(file.with_name("naive.tfrecord"))) as writer:
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": integer(label),
                "id": integer(row),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def write_tfds(file: Path) -> None:
    """Writes a data set by TFDS's download_and_prepare, shuffled."""
    import tensorflow_datasets as tfds

    images, labels = _data(file)

    def examples() -> Iterator[tuple[int, dict[str, Any]]]:
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield row, {"image": image, "label": label, "id": row}

    folder = file.with_name("tfds")
    shutil.rmtree(folder, ignore_errors=True)
    tfds.disable_progress_bar()
    tfds.dataset_builders.AdhocBuilder(
        name="bench",
        version="1.0.0",
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Tensor(shape=images.shape[1:], dtype=np.uint8, encoding="bytes"),
                "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
                "id": np.int64,
            }
        ),
        split_datasets={"train": examples()},
        data_dir=folder,
    ).download_and_prepare()


def write_array_record(file: Path) -> None:
    """Writes one ArrayRecord file of the images as they are: nothing is encoded, compressed or shuffled."""
    from array_record.python.array_record_module import ArrayRecordWriter

    images, _ = _data(file)
    writer = ArrayRecordWriter(str(file.with_name("array_record")), "group_size:1,uncompressed")
    for image in images:
        writer.write(image.tobytes())
    writer.close()


def write_bound(file: Path) -> None:
    """Takes a CRC of each image and writes them as they lie there: what no writer of TFRecord can do without."""
    images, _ = _data(file)
    num_rows = max(1, CHUNK_BYTES // images.shape[1])
    with open(file.with_name("bound"), "wb") as target:
        for start in range(0, len(images), num_rows):
            chunk = images[start : start + num_rows]
            for image in chunk:
                crc32c(image)
            target.write(chunk.data)


def _sides() -> dict[str, Callable[[Path], None]]:
    sides: dict[str, Callable[[Path], None]] = {
        OURS: write_ours,
        "ours_one_worker": write_ours_alone,
        "naive": write_naive,
        "tfds": write_tfds,
        "crc_write": write_bound,
    }
    if importlib.util.find_spec("array_record"):  # TFDS brings it on some platforms only
        sides["array_record"] = write_array_record
    return sides


@lru_cache(maxsize=1)  # mapped once, so that no round but the first pays for page faults
def _data(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = np.load(file, mmap_mode="r")  # one copy in memory, whoever reads it
    return images.view(np.ndarray), np.arange(len(images)) % NUM_CLASSES
