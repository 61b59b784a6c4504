"""ImageFolder: the source of class folders of images."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tasks.config import DataConfig
from tasks.prepare.folders import FolderPlan, batches, class_folder, empty_folders, open_file, plan_folders
from tasks.prepare.image import looks_like_image
from tasks.prepare.image_worker import ImageWorkers
from tasks.prepare.manifest import Feature
from tasks.prepare.remarks import Remarks
from tasks.prepare.source import Batch, Column, Part, Source, SourceSchema
from tasks.prepare.threads import num_workers
from tasks.sources import ImageFolderSource

NAME = "image"
_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif", ".ppm", ".pgm")


def open_image_folder(config: DataConfig, directory: Path, files: Sequence[str], part: Part | None = None) -> Source:
    """Returns the images of `files`, which lie below `directory`, or of a part of them as a source, in their order.

    One feature, `image`: encoded bytes, or for store: raw uint8 [short_side, short_side, channels]. A folder is a class
    if a file in it looks like an image by its name or its first bytes. Raises what `plan_folders` does; `read` raises
    DataError if a file is unreadable or a worker dies of it. The notes are complete once it has read all.
    """
    unusable = _folders_without_images(config, directory, files)
    plan = plan_folders(files, config, unusable=unusable, empty=empty_folders(directory, files, config))
    assert isinstance(config.source, ImageFolderSource)
    return _ImageFolder(config.source, directory, plan.only(part), num_workers(config))


class _ImageFolder:
    """The source; `notes` are those of the plan, and then what was found in the images."""

    def __init__(self, source: ImageFolderSource, directory: Path, plan: FolderPlan, num_workers: int) -> None:
        self._source, self._directory, self._plan, self._num_workers = source, directory, plan, num_workers
        self.schema = SourceSchema({NAME: _feature(source)}, (NAME,), plan.label_map)
        self.notes = plan.notes

    def read(self) -> Iterator[Batch]:
        """Yields the images, about 16 MB of them at once."""
        remarks = Remarks("file")
        yield from batches(self._plan, NAME, self._prepared(remarks), self._column)
        self.notes = self._plan.notes + remarks.notes()

    def _prepared(self, remarks: Remarks) -> Iterator[bytes | str]:
        """Yields the bytes of each usable file's image, or why there are none; counts the remarks."""
        files = [file.path for file in self._plan.files if file.bad is None]
        paths = ((str(path := self._directory / file), path) for file in files)
        with ImageWorkers(min(self._num_workers, len(files))) as workers:
            for file, image in zip(files, workers.prepare(paths, self._source), strict=True):
                if isinstance(image, str):
                    yield image
                    continue
                for remark in image.remarks:
                    remarks.add(remark, file)
                yield image.data

    def _column(self, images: list[bytes]) -> Column:
        if self._source.store != "raw":
            return images
        side = self._source.short_side
        assert side is not None  # the config sees to it
        return np.frombuffer(b"".join(images), np.uint8).reshape(len(images), side, side, self._source.channels)


def _feature(source: ImageFolderSource) -> Feature:
    if source.store == "raw":
        return Feature.of("tensor", "uint8", (source.short_side, source.short_side, source.channels))
    return Feature.of("image", shape=(None, None, source.channels))


def _folders_without_images(config: DataConfig, directory: Path, files: Sequence[str]) -> set[str]:
    """Returns the class folders in which no file is named or begins like an image: no class, and no mistake of one."""
    candidates: set[str] = set()
    found: set[str] = set()
    for file in files:
        folder = class_folder(file, config)
        if folder not in found:
            candidates.add(folder)
            if file.casefold().endswith(_ENDINGS) or _begins_like_image(directory / file):
                found.add(folder)
    return candidates - found


def _begins_like_image(path: Path) -> bool:
    with open_file(path) as file:
        return looks_like_image(file.read(32))
