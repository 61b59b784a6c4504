"""Case: what the sides of the feed bench are given, as a file that each of their processes reads."""

import importlib.util
from pathlib import Path

import numpy as np

from tasks.bench.arrays import NUM_CLASSES, Images, write_images, write_shards
from tasks.bench.pictures import write_pictures
from tasks.config import Config, DataConfig, FeedConfig
from tasks.download.download import download
from tasks.feed.host_facts import host_facts
from tasks.feed.plan import plan_feed
from tasks.files import Record
from tasks.prepare.manifest import MANIFEST, ShardManifest
from tasks.prepare.prepare import prepare
from tasks.sources import ImageFolderSource

CASE = "case.json"
IMAGE_SIZE = (224, 224)
MIN_BLOCKS = 5  # in a window


class Case(Record):
    """The training split of some shards, and how much of it a side has to deliver in one turn."""

    directory: Path
    """Of the shards."""
    resized: Path | None = None
    """Of the same images, resized when they were sharded."""
    array_record: Path | None = None
    """An ArrayRecord file of the same examples: the bytes of the image, then its label as int64."""
    feed: FeedConfig
    num_steps: int
    """Batches in a turn; all of them are full."""

    @property
    def num_examples(self) -> int:
        """Examples in a turn."""
        return self.num_steps * self.feed.global_batch_size

    @property
    def can_be_cached(self) -> bool:
        """Whether a feed would by itself keep the split in memory as a model sees it."""
        feed = self.feed.model_copy(update={"cache": "auto"})
        return plan_feed(self.manifest(), "train", feed, host_facts(self.directory)).cache == "decoded"

    def manifest(self) -> ShardManifest:
        """Returns the manifest of the shards."""
        return ShardManifest.read(self.directory / MANIFEST)

    def files(self) -> list[str]:
        """Returns the shards of the training split."""
        return [str(self.directory / shard.file) for shard in self.manifest().splits["train"].shards]


def records_case(directory: Path, num_examples: int, size_bytes: int) -> Path:
    """Returns the case file of about `num_examples` random records of one size, in a new directory."""
    file = write_images(directory, num_examples * 5 // 4, size_bytes)  # a fifth goes to the other splits
    images = np.load(file)
    labels = np.arange(len(images)) % NUM_CLASSES
    file.unlink()
    write_shards(directory / "shards", Images(images, labels), DataConfig())
    array_record = None
    if has_grain():
        from array_record.python.array_record_module import ArrayRecordWriter

        array_record = directory / "array_record"
        writer = ArrayRecordWriter(str(array_record), "group_size:1,uncompressed")
        for image, label in zip(images[:num_examples], labels, strict=False):
            writer.write(image.tobytes() + label.tobytes())
        writer.close()
    feed = FeedConfig(global_batch_size=256)
    return _write(directory, directory / "shards", feed, limit=num_examples, array_record=array_record)


def jpeg_case(directory: Path, num_images: int) -> Path:
    """Returns the case file of about `num_images` JPEGs, as they are and resized when sharded, in a new directory."""
    write_pictures(directory / "pictures", num_images * 5 // 4)

    def shards(workspace: str, **settings: object) -> Path:
        source = ImageFolderSource.model_validate({"path": str(directory / "pictures"), **settings})
        data = DataConfig(source=source)
        return prepare("bench", data, download(data, directory / workspace), directory / workspace).directory

    feed = FeedConfig(global_batch_size=32, block=64, image_size=IMAGE_SIZE)
    resized = shards("resized", store="jpeg", short_side=max(IMAGE_SIZE))
    return _write(directory, shards("whole"), feed, limit=num_images, resized=resized)


def config_case(directory: Path, config: Config, workspace: Path, *, num_examples: int, num_images: int) -> Path:
    """Returns the case file, in `directory`, of the shards of a config, which are written if they are not there.

    A turn is of `num_images` if there are images to decode, else of `num_examples`.
    """
    shards = prepare(config.name, config.data, download(config.data, workspace), workspace)
    manifest = shards.manifest()
    images = any(manifest.features[name].kind == "image" for name in manifest.inputs)
    return _write(directory, shards.directory, config.feed, limit=num_images if images else num_examples)


def has_grain() -> bool:
    """Returns whether Grain and ArrayRecord are installed."""
    return all(importlib.util.find_spec(package) for package in ("grain", "array_record"))


def _write(
    folder: Path,
    directory: Path,
    feed: FeedConfig,
    *,
    limit: int,
    resized: Path | None = None,
    array_record: Path | None = None,
) -> Path:
    num_examples = ShardManifest.read(directory / MANIFEST).splits["train"].num_examples
    batch_size = min(feed.global_batch_size, num_examples)
    num_steps = max(1, min(limit, num_examples) // batch_size)
    # No larger window than a turn: one that is filled before the turn begins would make the reading seem free.
    window = max(min(feed.window, num_steps * batch_size), MIN_BLOCKS * feed.block)
    changes = {"global_batch_size": batch_size, "last_batch": "drop", "window": window, "service": None}
    feed = feed.model_copy(update=changes)
    case = Case(directory=directory, resized=resized, array_record=array_record, feed=feed, num_steps=num_steps)
    case.write(folder / CASE)
    return folder / CASE
