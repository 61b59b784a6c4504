"""Images that no library writes, made byte by byte: colours of 16 bits, rare layouts, bombs."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFile, PngImagePlugin

from tasks.prepare.image import StoredImage
from tests.prepare.pictures import PHOTO, file_of, pixels_of, reason, stored

RNG = np.random.default_rng(7)


def png(values: NDArray[Any], colour_type: int, depth: int = 8, *chunks: tuple[bytes, bytes]) -> bytes:
    """Returns a PNG of values [H, W, samples] with filter 0; `chunks` go before the pixels."""
    height, width = values.shape[:2]
    rows = values.astype(f">u{depth // 8}").reshape(height, -1)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def tiff(values: NDArray[Any], order: str, photometric: int, *, bits: int = 16, **more: int) -> bytes:
    """Returns a TIFF of values [H, W, samples]; `more` are tags, t259=8 for one that is deflated."""
    height, width, samples = values.shape
    pixels = values.astype(f"{order}u{(bits + 7) // 8}").tobytes()
    if more.get("t259") == 8:
        pixels = zlib.compress(pixels)
    counts = struct.pack(f"{order}{samples}H", *[bits] * samples)
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8, 277: samples, 278: height}
    tags |= {279: len(pixels)} | {int(tag[1:]): value for tag, value in more.items()}
    entries = b""
    for tag, value in sorted(tags.items()):
        if tag == 258 and samples > 1:
            entries += struct.pack(f"{order}HHII", tag, 3, samples, 8 + len(pixels))
        else:
            entries += struct.pack(f"{order}HHII", tag, 4, 1, value)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(pixels) + len(counts))
    return head + pixels + counts + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


def to_8_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    return np.floor(values.astype(np.float64) * 255 / 65535 + 0.5).astype(np.uint8)


EVERY_16 = np.array([0, 1, 127, 128, 129, 255, 256, 257, 385, 386, 32767, 32768, 65406, 65407, 65534, 65535], np.uint16)


COLOURS_16 = RNG.integers(0, 65536, (4, 5, 4), dtype=np.uint16)


COLOURS_16[:2, :4, 0] = EVERY_16[:8].reshape(2, 4)


def test_a_jpeg_of_rare_subsampling_is_read() -> None:
    data = bytearray(file_of(np.full((16, 16, 3), 128, np.uint8), "JPEG"))
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    assert data[frame + 10 : frame + 19] == bytes([1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    data[frame + 14] = 0x21  # Cb in half height only: one more block
    # Four blocks of Y without any change (001010), three of Cb and Cr (0000), and ones to fill the byte.
    bits = "001010" * 4 + "0000" * 3 + "1111"
    data[scan + 14 :] = int(bits, 2).to_bytes(5) + b"\xff\xd9"
    kept = stored(bytes(data))
    assert kept == StoredImage(bytes(data), ())
    for fields in ({"channels": 1}, {"channels": 3}):
        assert (pixels_of(bytes(data), store="png", **fields) == 128).all()


def test_a_warning_of_libjpeg_that_costs_no_pixel_makes_no_jpeg_bad() -> None:
    data = bytearray(file_of(PHOTO, "JPEG"))
    data[data.index(b"JFIF") + 5] = 9  # its revision
    assert stored(bytes(data)) == StoredImage(bytes(data), ())


def test_16_bits_of_grey_are_scaled_and_rounded() -> None:
    values = np.resize(EVERY_16, (3, 16))
    expected = to_8_bits(values)
    files = [png(values[..., None], 0, 16), file_of(values, "TIFF"), file_of(Image.fromarray(values), "PPM")]
    files += [tiff(values[..., None], order, 1, t259=how) for order in "<>" for how in (1, 8)]
    for data in files:
        assert np.array_equal(pixels_of(data, channels=1), expected)
        assert np.array_equal(pixels_of(data)[..., 2], expected)
    white_is_zero = tiff(values[..., None], "<", 0)
    assert np.array_equal(pixels_of(white_is_zero, channels=1), 255 - expected)


def test_16_bits_of_colour_are_scaled_and_rounded() -> None:
    colours = COLOURS_16[..., :3]
    for data in (png(colours, 2, 16), *(tiff(colours, order, 2, t259=how) for order in "<>" for how in (1, 8))):
        assert np.array_equal(pixels_of(data), to_8_bits(colours))


def test_16_bits_with_alpha_are_put_on_white() -> None:
    for colour_type, samples in ((6, 4), (4, 2)):
        values = np.ascontiguousarray(COLOURS_16[..., :samples])
        values[0, :, -1], values[1, :, -1] = 0, 65535
        pixels = pixels_of(png(values, colour_type, 16)).astype(int)
        eight = to_8_bits(values).astype(float)
        alpha = eight[..., -1:] / 255
        expected = np.broadcast_to(eight[..., :-1] * alpha + 255 * (1 - alpha), pixels.shape)
        assert (pixels[0] == 255).all()
        assert np.array_equal(pixels[1], expected[1])
        assert np.abs(pixels - expected).max() <= 1


def test_a_transparent_colour_of_16_bits_is_compared_in_16_bits() -> None:
    values = np.array([[[1000, 2000, 3000], [1000, 2000, 3001]]], np.uint16)
    key = struct.pack(">HHH", 1000, 2000, 3000)
    assert pixels_of(png(values, 2, 16, (b"tRNS", key))).tolist() == [[[255, 255, 255], [4, 8, 12]]]
    grey = values[..., :1]
    assert pixels_of(png(grey, 0, 16, (b"tRNS", struct.pack(">H", 1000)))).tolist() == [[[255] * 3, [255] * 3]]


def test_colours_in_planes_of_16_bits_are_refused_rather_than_cut() -> None:
    assert reason(tiff(COLOURS_16[..., :3], "<", 2, t284=2)) == (
        "has colours of 16 bits in planes, which cannot be read exactly"
    )


def test_a_png_whose_pixels_leave_its_palette_is_bad() -> None:
    data = png(np.array([[[0], [2]]]), 3, 8, (b"PLTE", bytes(6)))
    assert reason(data) == "is a damaged PNG (pixels outside of its palette of 2 colours)"


def test_a_bomb_is_refused_from_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("decoded")

    row = zlib.compressobj()
    body = b"".join(row.compress(bytes(16_001)) for _ in range(1000)) + row.flush()
    header = struct.pack(">IIBBBBB", 16_000, 16_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    )
    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "verify", fail)
    assert reason(bomb) == "has more pixels than data.source.max_pixels=50000000"


def test_a_gif_whose_frame_outgrows_its_screen_is_measured_with_it() -> None:
    data = bytearray(file_of(Image.new("L", (4, 4)), "GIF"))
    frame = data.index(b",\0\0\0\0\x04\0\x04\0")
    data[frame + 5 : frame + 9] = struct.pack("<HH", 60_000, 60_000)
    assert "max_pixels" in reason(bytes(data))


def test_a_tiff_of_giant_tiles_is_refused() -> None:
    data = tiff(np.zeros((4, 4, 1), np.uint8), "<", 1, bits=8, t322=60_000, t323=60_000, t324=8, t325=16)
    assert reason(data) == "has tiles of 60000 x 60000 pixels, over data.source.max_pixels"


def test_a_bomb_of_text_in_a_png_is_refused() -> None:
    chunk = (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(100_000_000)))
    assert "MAX_TEXT_CHUNK" in reason(png(PHOTO, 2, 8, chunk))
