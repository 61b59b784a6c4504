"""Images: an array of images of one size as a source, and the shards that our writer makes of it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.config import DataConfig
from tasks.prepare.directory import plan_directory, write_directory
from tasks.prepare.manifest import Feature
from tasks.prepare.scan import scan
from tasks.prepare.source import Batch, SourceSchema
from tasks.prepare.threads import num_workers

NUM_CLASSES = 2
BATCH_BYTES = 2**24  # what a source gives at once


class Images:
    """[n, size] uint8 and their labels as a source."""

    notes: tuple[str, ...] = ()

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self._images, self._labels = images, labels
        image = Feature.of("tensor", "uint8", images.shape[1:])
        self.schema = SourceSchema({"image": image}, inputs=("image",), label_map=tuple(map(str, range(NUM_CLASSES))))

    def read(self) -> Iterator[Batch]:
        """Yields the images in order, a few at once."""
        num_rows = max(1, BATCH_BYTES // self._images.shape[1])
        for start in range(0, len(self._images), num_rows):
            rows = np.arange(start, min(start + num_rows, len(self._images)))
            images, labels = self._images[rows[0] : rows[-1] + 1], self._labels[rows]
            yield Batch(rows=rows, keys=list(map(str, rows)), labels=labels, columns={"image": images})


def write_images(folder: Path, num_examples: int, size_bytes: int) -> Path:
    """Returns the file of `num_examples` random images, [num_examples, size_bytes] uint8, in a new folder."""
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (num_examples, size_bytes), np.uint8)
    np.save(folder / "images.npy", images)
    return folder / "images.npy"


def write_shards(directory: Path, source: Images, config: DataConfig) -> None:
    """Writes complete shards: split, shuffled as a whole, with digests, manifest and TFDS metadata, synced."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        scanned = scan(source, Path(folder), seed=0, max_bad_fraction=0, num_threads=num_workers(config))
        plan = plan_directory("bench", config, scanned, data_digest="0" * 16, source_digest="0" * 64)
        write_directory(directory, plan)
