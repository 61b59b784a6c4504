"""Images of any kind, whole and damaged: a reason, or right pixels, which TensorFlow sees too."""

import io
import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from tasks.prepare.image import StoredImage, prepare_image
from tasks.sources import ImageFolderSource

MODES = {
    "JPEG": ("L", "RGB", "CMYK"),
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "GIF": ("1", "L", "P", "RGB", "RGBA"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F"),
    "AVIF": ("L", "RGB", "RGBA"),
    "PPM": ("1", "L", "RGB", "I"),
}
STORES: tuple[dict[str, Any], ...] = (
    {},
    {"channels": 1},
    {"store": "jpeg", "short_side": 7},
    {"store": "png"},
    {"store": "raw", "short_side": 5, "channels": 1},
)
kinds = st.sampled_from([(form, mode) for form, modes in MODES.items() for mode in modes])

# Decodes what `prepare` stored; in one process for all, since TensorFlow takes seconds to import.
DECODE = """
import pickle, sys
import tensorflow as tf
def decode(data, channels):
    if data[:2] == b"\\xff\\xd8":
        return tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE")
    return tf.io.decode_png(data, channels)
images = pickle.load(open(sys.argv[1], "rb"))
pickle.dump([decode(data, channels).numpy() for data, channels in images], open(sys.argv[2], "wb"))
"""


def image(mode: str, width: int, height: int, seed: int) -> Image.Image:
    """Returns coarse noise, so that a JPEG has something to keep."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // 5 + 1, width // 5 + 1, 4), dtype=np.uint8)
    noise = Image.fromarray(small, "RGBA").resize((width, height), Image.Resampling.BICUBIC)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
    return noise.convert("RGB").convert(mode) if mode not in {"RGBA", "LA"} else noise.convert(mode)


def encode(form: str, pixels: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pixels.save(buffer, form, **options)
    return buffer.getvalue()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    kind=kinds,
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 9),
    cut=st.floats(0, 1) | st.none(),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    fields=st.sampled_from(STORES),
)
@example(kind=("PNG", "RGB"), size=(9, 9), seed=0, cut=1.0, flips=[(0.99, 1)], fields={})
def test_a_damaged_image_is_a_reason_or_an_image_of_the_asked_shape(
    *,
    kind: tuple[str, str],
    size: tuple[int, int],
    seed: int,
    cut: float | None,
    flips: list[tuple[float, int]],
    fields: dict[str, Any],
) -> None:
    form, mode = kind
    data = bytearray(encode(form, image(mode, *size, seed)))
    for place, change in flips:
        data[int(place * len(data))] ^= change
    if cut is not None:
        del data[int(cut * len(data)) :]
    source = ImageFolderSource(path="unused", max_pixels=1_000_000, **fields)
    found = prepare_image(bytes(data), source)
    assert found == prepare_image(bytes(data), source)
    if isinstance(found, str):
        assert found.split()[0] in {"is", "has", "holds"}
        assert "\n" not in found
        assert " at 0x" not in found
    elif source.store == "raw":
        assert len(found.data) == 5 * 5
    else:
        stored = Image.open(io.BytesIO(found.data))
        assert stored.format in {"JPEG", "MPO", "PNG"}
        assert source.short_side in {None, min(stored.size)}


def test_tensorflow_sees_the_pixels_that_the_file_means(tmp_path: Path) -> None:
    files, stored = [], []
    sizes = itertools.cycle([(1, 1), (17, 9), (33, 40), (64, 48), (7, 31)])
    options: dict[str, list[dict[str, Any]]] = {
        "JPEG": [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1, "quality": 30}, {"exif": turned(6)}],
        "PNG": [{}, {"compress_level": 0}, {"exif": turned(8)}],
        "WEBP": [{"lossless": True}],
    }
    for form, modes in MODES.items():
        for mode, how in itertools.product(modes, options.get(form, [{}])):
            for channels in (1, 3):
                data = encode(form, image(mode, *next(sizes), len(files)), **how)
                found = prepare_image(data, ImageFolderSource(path="unused", channels=channels))
                if mode in {"I", "F"} and form == "TIFF":
                    assert isinstance(found, str)
                    continue
                assert isinstance(found, StoredImage), (form, mode, found)
                files.append((form, mode, channels, data))
                stored.append((found.data, channels))
    for form, mode, channels, data in damaged(400):
        found = prepare_image(data, ImageFolderSource(path="unused", channels=channels))
        if isinstance(found, StoredImage):
            files.append((form, mode, channels, found.data))
            stored.append((found.data, channels))
    with open(tmp_path / "images", "wb") as file:
        pickle.dump(stored, file)
    arguments = [str(tmp_path / name) for name in ("images", "pixels")]
    done = subprocess.run([sys.executable, "-c", DECODE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "pixels", "rb") as file:
        seen = pickle.load(file)  # noqa: S301 - our own
    for (form, mode, channels, data), pixels in zip(files, seen, strict=True):
        meant = meaning(data, channels)
        assert pixels.shape == (*meant.shape[:2], channels), (form, mode)
        assert np.array_equal(pixels, meant), (form, mode, channels)
    assert sum(kept == data for (*_, data), (kept, _) in zip(files, stored, strict=True)) > 20


def damaged(number: int) -> Iterator[tuple[str, str, int, bytes]]:
    """Yields JPEGs and PNGs of which some bytes, most of them in the header, were changed."""
    rng = np.random.default_rng(11)
    for seed in range(number):
        form, mode = (("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "P"))[seed % 3]
        data = bytearray(encode(form, image(mode, 20, 30, seed)))
        for _ in range(1 + seed % 3):
            data[rng.integers(min(len(data), 640))] = rng.integers(256)
        yield form, mode, (1, 3)[seed // 3 % 2], bytes(data)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def meaning(data: bytes, channels: int) -> np.ndarray:
    """Returns the pixels of a whole file, [H, W, channels], by the plainest use of Pillow."""
    file = Image.open(io.BytesIO(data))
    orientation = file.getexif().get(0x0112, 1)
    if file.format == "JPEG" and channels == 1 and file.mode == "RGB":
        file.draft("L", None)
    if file.mode in {"I", "I;16"}:
        grey = np.floor(np.asarray(file).astype(np.float64) * 255 / 65535 + 0.5)
        array = np.repeat(grey[..., None], channels, axis=-1)
    else:
        pixels = file.convert("RGBA") if file.has_transparency_data else file
        if pixels.mode == "RGBA":
            pixels = Image.alpha_composite(Image.new("RGBA", file.size, "white"), pixels)
        pixels = pixels if pixels.mode == "L" else pixels.convert("RGB")
        array = np.atleast_3d(np.asarray(pixels.convert("L" if channels == 1 else "RGB")))
    return np.rot90(array, {1: 0, 6: -1, 8: 1}[orientation]).astype(int)
