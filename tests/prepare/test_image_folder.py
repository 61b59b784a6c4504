"""Image folders: the same examples whatever the number of workers, and no file left out in silence."""

import io
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from tasks.config import DataConfig
from tasks.errors import DataError
from tasks.prepare.image_folder import open_image_folder
from tasks.prepare.image_worker import ImageWorker, ImageWorkers
from tasks.prepare.source import Batch, Source
from tasks.sources import ImageFolderSource

RNG = np.random.default_rng(3)


def picture(form: str = "JPEG", size: tuple[int, int] = (40, 30)) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(buffer, form)
    return buffer.getvalue()


def write(directory: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def opened(
    directory: Path, files: list[str], splits: dict[str, Any] | None = None, num_workers: int = 1, **fields: Any
) -> Source:
    source = {"kind": "image_folder", "path": str(directory), **fields}
    config = DataConfig.model_validate({"source": source, "splits": splits or {}, "num_workers": num_workers})
    return open_image_folder(config, directory, files)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pets")
    files = {f"cat/{number}.jpg": picture() for number in range(12)}
    files |= {f"dog/{number}.png": picture("PNG") for number in range(12)}
    files |= {"dog/12.gif": picture("GIF"), "dog/13.JPG": b"", "dog/14.txt": b"words", "dog/15": picture()}
    write(directory, files)
    return directory


def files_of(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def contents(batches: list[Batch]) -> list[Any]:
    return [
        (batch.rows.tolist(), batch.keys, batch.labels.tolist(), list(map(bytes, batch.columns["image"])), batch.bad)
        for batch in batches
    ]


@pytest.mark.parametrize("fields", [{}, {"store": "jpeg", "short_side": 16}, {"store": "raw", "short_side": 8}])
def test_any_number_of_workers_gives_the_same_examples(pets: Path, fields: dict[str, Any]) -> None:
    read, notes = {}, {}
    for num_workers in (1, 2, 4):
        source = opened(pets, files_of(pets), num_workers=num_workers, **fields)
        read[num_workers] = contents(list(source.read()))
        notes[num_workers] = source.notes
    assert read[1] == read[2] == read[4]
    assert notes[1] == notes[2] == notes[4]


def test_images_are_kept_and_whatever_is_not_is_counted_and_named(pets: Path) -> None:
    source = opened(pets, files_of(pets))
    (batch,) = source.read()
    feature = source.schema.features["image"]
    assert (feature.kind, feature.shape, feature.storage) == ("image", (None, None, 3), "bytes_list")
    assert batch.columns["image"][0] == (pets / "cat/0.jpg").read_bytes()
    assert (batch.rows[0], batch.keys[0], batch.labels[0], len(batch.rows)) == (0, "cat/0.jpg", 0, 26)
    assert [(bad.path, bad.reason) for bad in batch.bad] == [
        ("dog/13.JPG", "is empty"),
        ("dog/14.txt", "is no image that can be read (text)"),
    ]
    assert source.notes == ("1 file of format GIF: re-encoded as lossless PNG (dog/12.gif)",)
    assert next(iter(source.read())).rows.tolist() == batch.rows.tolist()
    assert len(source.notes) == 1  # of a second reading, not of both


def test_raw_pixels_have_one_shape(pets: Path) -> None:
    source = opened(pets, files_of(pets), store="raw", short_side=8, channels=1)
    feature = source.schema.features["image"]
    assert (feature.kind, feature.shape, feature.dtype, feature.storage) == ("tensor", (8, 8, 1), "uint8", "raw_bytes")
    (batch,) = source.read()
    column = batch.columns["image"]
    assert isinstance(column, np.ndarray)
    assert (column.shape, column.dtype) == ((26, 8, 8, 1), np.uint8)


def test_bad_images_alone_make_a_batch_without_examples(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": bytes(9), "dog/2.jpg": bytes(9)})
    for fields in ({}, {"store": "raw", "short_side": 8}):
        (batch,) = opened(tmp_path, ["cat/1.jpg", "dog/2.jpg"], **fields).read()
        assert (batch.rows.shape, len(batch.columns["image"]), len(batch.bad)) == ((0,), 0, 2)


def test_a_folder_without_an_image_is_no_class_and_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"cat/1": picture(), "dog/1.tif": bytes(9), "notes/a.xml": b"<a/>", "notes/b/c.csv": b"1,2", "readme": b"hi"},
    )
    (tmp_path / "owl").mkdir()
    source = opened(tmp_path, files_of(tmp_path))
    assert source.schema.label_map == ("cat", "dog")
    assert source.notes == (
        "2 files in folders without an image, which are no classes: left out (notes/a.xml, notes/b/c.csv)",
        "1 file in no class folder: left out (readme)",
        "1 folder without a file: no class, left out (owl)",
    )
    (batch,) = source.read()
    assert (batch.keys, batch.bad[0].path) == (["cat/1"], "dog/1.tif")


def test_splits_go_by_folder_group_or_path(tmp_path: Path) -> None:
    write(tmp_path, {f"{split}/{name}/p{split}.png": picture("PNG") for split in "ab" for name in ("x", "y")})
    files = files_of(tmp_path)
    official = opened(tmp_path, files, {"kind": "official", "train": "a", "validation": "b", "test": 0.5})
    assert official.schema.label_map == ("x", "y")
    assert [list(batch.split_by or ()) for batch in official.read()] == [["a", "a", "b", "b"]]
    (tmp_path / "a/x/odd.png").write_bytes(picture("PNG"))
    grouped = opened(tmp_path, files_of(tmp_path), {"kind": "group", "column": "path", "pattern": "(p[ab])"})
    (batch,) = grouped.read()
    assert list(batch.split_by or ()) == ["pa", "pa", "pb", "pb"]
    assert [bad.path for bad in batch.bad] == ["a/x/odd.png"]
    assert batch.rows.tolist() == [1, 2, 3, 4]


def test_batches_hold_about_16_mb(tmp_path: Path) -> None:
    side = 1000
    write(tmp_path, {f"{'ab'[row % 2]}/{row}.bmp": picture("BMP") for row in range(8)})
    source = opened(tmp_path, files_of(tmp_path), store="raw", short_side=side)
    assert [len(batch.rows) for batch in source.read()] == [6, 2]


def test_a_file_that_is_gone_is_an_error_and_no_bad_example(tmp_path: Path) -> None:
    for num_workers in (1, 2):
        source = opened(tmp_path, [f"{name}/{row}.jpg" for name in "ab" for row in range(4)], num_workers=num_workers)
        with pytest.raises(DataError, match=r"a/0.jpg: cannot be read \(No such file or directory\); mend or remove"):
            list(source.read())


def image_workers() -> list[psutil.Process]:
    return [process for process in psutil.Process().children() if "tasks.prepare.image_worker" in process.cmdline()]


def test_a_worker_that_dies_of_an_image_is_an_error_that_names_it(tmp_path: Path) -> None:
    # A pipe that nobody writes to is a file whose reading never ends: time to kill the worker.
    os.mkfifo(tmp_path / "fatal.jpg")
    (tmp_path / "fine.jpg").write_bytes(picture())
    source = ImageFolderSource(path="unused")
    with ImageWorker() as worker:
        assert not isinstance(worker.prepare("fine", tmp_path / "fine.jpg", source), str)
        (process,) = image_workers()
        process.send_signal(signal.SIGSEGV)
        with pytest.raises(DataError, match=r"fatal.jpg: the process that decoded it was killed by SIGSEGV; remove"):
            worker.prepare("fatal.jpg", tmp_path / "fatal.jpg", source)


def test_a_reading_that_is_broken_off_leaves_no_worker(tmp_path: Path) -> None:
    write(tmp_path, {f"{row}.jpg": picture() for row in range(40)})
    images = [(str(row), tmp_path / f"{row}.jpg") for row in range(40)]
    with ImageWorkers(2) as workers:
        next(workers.prepare(images, ImageFolderSource(path="unused")))
        assert len(image_workers()) == 2
    assert image_workers() == []


def test_a_worker_brings_in_no_tensorflow_and_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "fine.jpg").write_bytes(picture())
    with ImageWorker() as worker:
        worker.prepare("fine", tmp_path / "fine.jpg", ImageFolderSource(path="unused"))
        (process,) = image_workers()
        assert not [entry.path for entry in process.memory_maps() if "tensorflow" in entry.path]
        worker._connection.close()  # what the kernel does when this process is killed
        assert process.wait(timeout=20) in {0, None}
