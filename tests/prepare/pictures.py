"""Pictures: a photograph, files of it, and what `prepare_image` makes of a file."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasks.prepare.image import StoredImage, prepare_image
from tasks.sources import ImageFolderSource

PHOTO = np.asarray(
    Image.fromarray(np.random.default_rng(7).integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(
        (64, 48), Image.BICUBIC
    )
)


def source(**fields: Any) -> ImageFolderSource:
    return ImageFolderSource(path="unused", **fields)


def file_of(image: Image.Image | NDArray[Any], form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(buffer, form, **options)
    return buffer.getvalue()


def stored(data: bytes, **fields: Any) -> StoredImage:
    image = prepare_image(data, source(**fields))
    assert isinstance(image, StoredImage), image
    return image


def pixels_of(data: bytes, **fields: Any) -> NDArray[np.uint8]:
    """Returns what is stored, decoded: [H, W, 3] or [H, W]."""
    return np.asarray(Image.open(io.BytesIO(stored(data, **fields).data)))


def reason(data: bytes, **fields: Any) -> str:
    found = prepare_image(data, source(**fields))
    assert isinstance(found, str), found
    return found
