"""One image: right pixels of whatever format, or the reason why not."""

import io
import itertools
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from tasks.prepare.image import FORMATS, StoredImage, looks_like_image, prepare_image
from tests.prepare.pictures import PHOTO, file_of, pixels_of, reason, source, stored

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM"])
def test_the_format_is_what_the_content_says(form: str) -> None:
    data = file_of(PHOTO, form, **({"lossless": True} if form == "WEBP" else {}))
    assert looks_like_image(data[:16])
    pixels = pixels_of(data)
    assert pixels.shape == (48, 64, 3)
    if form in {"PNG", "WEBP", "BMP", "TIFF", "PPM"}:
        assert np.array_equal(pixels, PHOTO)


def test_every_format_that_is_read_is_tested() -> None:
    assert set(FORMATS) == {"JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM"}


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 20}, {"optimize": True}]
)
def test_a_plain_jpeg_is_kept_byte_for_byte(options: dict[str, Any]) -> None:
    for image in (PHOTO, PHOTO[..., 0]):
        data = file_of(image, "JPEG", **options)
        assert stored(data) == StoredImage(data, ())


def test_a_plain_png_is_kept_byte_for_byte() -> None:
    for mode in ("1", "L", "P", "RGB"):
        data = file_of(Image.fromarray(PHOTO).convert(mode), "PNG")
        assert stored(data) == StoredImage(data, ()), mode


def test_a_grey_feature_keeps_grey_png_and_any_plain_jpeg() -> None:
    for data in (file_of(PHOTO, "JPEG"), file_of(PHOTO[..., 0], "JPEG"), file_of(PHOTO[..., 0], "PNG")):
        assert stored(data, channels=1).data == data
    # TensorFlow weighs red, green and blue otherwise than everybody else here.
    grey = pixels_of(file_of(PHOTO, "PNG"), channels=1)
    assert np.array_equal(grey, np.asarray(Image.fromarray(PHOTO).convert("L")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_are_upright(form: str, orientation: int) -> None:
    upright = np.zeros((32, 48, 3), np.uint8)
    upright[:16, :16] = [255, 0, 0]
    upright[16:, 32:] = [0, 0, 255]
    # What a camera stores that is held so: EXIF 2.32, tag 0x0112.
    as_stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    exact = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(form, {})
    data = file_of(np.ascontiguousarray(as_stored), form, exif=exif, **exact)
    image = stored(data)
    pixels = np.asarray(Image.open(io.BytesIO(image.data)).convert("RGB")).astype(int)
    assert pixels.shape == upright.shape
    assert np.abs(pixels - upright).max() <= (4 if form == "JPEG" else 0)
    if form in {"JPEG", "PNG"}:
        assert (image.data == data) == (orientation == 1)
        assert bool(image.remarks) == (orientation != 1)
    assert Image.open(io.BytesIO(image.data)).getexif().get(0x0112, 1) == 1


def test_exif_that_cannot_be_read_is_said_and_the_pixels_kept() -> None:
    data = file_of(PHOTO, "JPEG", exif=b"Exif\0\0not a TIFF header at all")
    assert stored(data) == StoredImage(data, ("with EXIF that cannot be read: taken to be upright",))


def test_cmyk_of_jpeg_inverted_by_adobe_and_of_tiff_gives_the_same_colours() -> None:
    cmyk = np.zeros((16, 16, 4), np.uint8)
    cmyk[:, :8] = [0, 255, 255, 0]  # red
    cmyk[8:, 8:] = [0, 0, 0, 255]  # black; the rest is white paper
    image = Image.fromarray(cmyk, "CMYK")
    for form in ("JPEG", "TIFF"):
        pixels = pixels_of(file_of(image, form, **({"quality": 100} if form == "JPEG" else {}))).astype(int)
        for place, colour in (((3, 3), [255, 0, 0]), ((12, 12), [0, 0, 0]), ((3, 12), [255, 255, 255])):
            assert np.abs(pixels[place] - colour).max() <= 3, form


def test_a_jpeg_in_rgb_has_its_own_colours() -> None:
    data = file_of(PHOTO, "JPEG", keep_rgb=True, quality=100)
    assert np.abs(pixels_of(data).astype(int) - PHOTO).max() <= 3
    assert stored(data).remarks == ("of JPEG in RGB: re-encoded as lossless PNG",)


def test_transparency_is_put_on_white_and_said() -> None:
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 51]]], np.uint8)
    image = stored(file_of(rgba, "PNG"))
    assert np.asarray(Image.open(io.BytesIO(image.data))).tolist() == [[[10, 20, 30], [255] * 3, [204] * 3]]
    assert image.remarks == (
        "with transparency: put on white",
        "of PNG with transparency: re-encoded as lossless PNG",
    )
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    palette.putpalette([9, 9, 9, 7, 7, 7])
    for form in ("PNG", "GIF"):
        assert pixels_of(file_of(palette, form, transparency=1)).tolist() == [[[9, 9, 9], [255, 255, 255]]]


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_the_first_frame_is_taken_and_said(form: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    image = stored(file_of(frames[0], form, save_all=True, append_images=frames[1:]))
    assert "with more than one frame or page: the first was taken" in image.remarks
    pixels = np.asarray(Image.open(io.BytesIO(image.data)).convert("RGB")).astype(int)
    assert np.abs(pixels - [255, 0, 0]).max() <= (4 if form in {"AVIF", "WEBP"} else 0)


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "I;16"]
)
def test_every_mode_of_a_tiff_becomes_rgb_or_a_reason(mode: str) -> None:
    image = Image.new(mode, (3, 2))
    try:
        data = file_of(image, "TIFF")
    except OSError:
        pytest.fail(f"nothing to test: a TIFF cannot be {mode}") if mode not in {"HSV", "PA"} else None
        return
    found = prepare_image(data, source())
    assert (found if isinstance(found, str) else None) in {
        None,
        "is a damaged TIFF (conversion from LAB to RGB not supported)",
    }


@pytest.mark.parametrize(("mode", "bits"), [("I", 32), ("F", 32)])
def test_pixels_of_unknown_range_are_refused(mode: str, bits: int) -> None:
    assert reason(file_of(Image.new(mode, (4, 4), 1), "TIFF")) == (
        f"has pixels of {bits} bits (mode {mode}), of which nothing says which value is white"
    )


def test_a_colour_profile_changes_no_value() -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    for form in ("PNG", "TIFF"):
        assert np.array_equal(pixels_of(file_of(PHOTO, form, icc_profile=profile)), PHOTO)


@pytest.mark.parametrize("size", [1, 100, 54_321])
def test_zero_bytes_are_no_image(size: int) -> None:
    assert reason(bytes(size)) == f"holds nothing but {size:,} zero bytes"
    assert reason(b"") == "is empty"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"Die Katze tritt die Treppe krumm.\n", "text"),
        ("Größe\n".encode() * 300, "text"),
        (b"<!DOCTYPE html><html>404", "HTML or XML"),
        (b"\n<svg xmlns='http://www.w3.org/2000/svg'/>", "HTML or XML"),
        (b"%PDF-1.7 ...", "PDF"),
        (b"PK\x03\x04...", "zip archive"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\x00\x01\x02\x03\x04\x05", "unknown content"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "text"),
    ],
)
def test_what_is_no_image_is_named(data: bytes, what: str) -> None:
    assert reason(data) == f"is no image that can be read ({what})"
    assert not looks_like_image(data[:16])


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM"])
def test_a_file_that_is_cut_anywhere_is_bad(form: str) -> None:
    data = file_of(PHOTO, form)
    # A GIF's pixels are whole without its last two bytes, which only mark its end.
    last = len(data) - (3 if form == "GIF" else 1)
    for end in {*range(1, last, max(len(data) // 40, 1)), last}:
        assert isinstance(prepare_image(data[:end], source()), str), end
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_lost_pieces_of_a_jpeg_are_found_wherever_they_were(options: dict[str, Any]) -> None:
    noise = RNG.integers(0, 256, (200, 200, 3), dtype=np.uint8)
    data = file_of(noise, "JPEG", **options)
    for start in range(2000, len(data) - 4500, 7000):
        hole = data[:start] + bytes(4096) + data[start + 4096 :]
        lost = data[:start] + data[start + 512 :]
        cut_and_closed = data[:start] + b"\xff\xd9"
        for broken in (hole, lost, cut_and_closed):
            for store in ("encoded", "png"):
                assert reason(broken, store=store).startswith("is a damaged JPEG"), start
    assert reason(data[:3000] + bytes(len(data) - 3000)).startswith("is a damaged JPEG")


def test_a_flipped_bit_of_a_png_is_found_wherever_it_is() -> None:
    data = file_of(PHOTO, "PNG")
    for position in range(8, len(data), max(len(data) // 60, 1)):
        broken = bytearray(data)
        broken[position] ^= 0x10
        assert isinstance(prepare_image(bytes(broken), source()), str), position


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM"])
def test_the_limit_of_pixels_is_exact_for_every_format(form: str) -> None:
    data = file_of(PHOTO, form)
    stored(data, max_pixels=48 * 64)
    assert reason(data, max_pixels=48 * 64 - 1) == "has 64 x 48 pixels, more than data.source.max_pixels=3071"


def test_a_side_that_no_jpeg_can_have_is_refused() -> None:
    assert reason(file_of(np.zeros((1, 65_501), np.uint8), "PNG")) == (
        "has 65501 x 1 pixels, and a side may have 65500"
    )


def test_the_short_side_is_exact_and_the_aspect_is_kept() -> None:
    for (width, height), expected in {
        (64, 48): (43, 32),
        (48, 64): (32, 43),
        (10, 10): (32, 32),
        (3, 100): (32, 1067),
    }.items():
        data = file_of(np.zeros((height, width, 3), np.uint8), "PNG")
        for store in ("jpeg", "png"):
            assert Image.open(io.BytesIO(stored(data, store=store, short_side=32).data)).size == expected
    grown = file_of(np.zeros((1, 60_000), np.uint8), "PNG")
    assert reason(grown, store="png", short_side=100) == (
        "has 6000000 x 100 pixels after resizing, more than data.source.max_pixels=50000000"
    )


def test_resizing_is_antialiased_and_the_same_from_jpeg_and_png() -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 255  # every other column: a resize without a filter gives all black or all white
    pixels = pixels_of(file_of(stripes, "PNG"), store="png", short_side=32)
    assert np.abs(pixels[4:-4, 4:-4].astype(int) - 127).max() <= 8
    smooth = np.asarray(Image.fromarray(PHOTO).resize((1024, 768), Image.BICUBIC))
    from_png = pixels_of(file_of(smooth, "PNG"), store="png", short_side=64).astype(int)
    from_jpeg = pixels_of(file_of(smooth, "JPEG", quality=100, subsampling=0), store="png", short_side=64).astype(int)
    assert np.abs(from_png - from_jpeg).max() <= 4


def test_raw_is_the_square_in_the_middle() -> None:
    image = np.zeros((20, 60, 3), np.uint8)
    image[:, 20:40] = [1, 2, 3]
    for data in (file_of(image, "PNG"), file_of(image.transpose(1, 0, 2), "PNG")):
        assert stored(data, store="raw", short_side=10).data == bytes([1, 2, 3]) * 100
    assert len(stored(file_of(image, "PNG"), store="raw", short_side=10, channels=1).data) == 100


def test_the_quality_of_jpeg_is_as_asked_and_the_bytes_repeat() -> None:
    data = file_of(PHOTO, "PNG")
    small, large = (stored(data, store="jpeg", quality=quality) for quality in (30, 95))
    assert len(small.data) < len(large.data)
    assert large == stored(data, store="jpeg", quality=95)
    assert large.data == file_of(PHOTO, "JPEG", quality=95)


def test_re_encoding_keeps_nothing_but_the_pixels() -> None:
    exif = Image.Exif()
    exif[0x010F] = "Camera"
    data = file_of(PHOTO, "WEBP", lossless=True, exif=exif, icc_profile=b"profile" * 20)
    image = Image.open(io.BytesIO(stored(data).data))
    assert (image.info, dict(image.getexif())) == ({}, {})


def test_all_stores_give_the_same_pixels_where_nothing_is_lost() -> None:
    data = file_of(PHOTO, "BMP")
    encoded, as_png = (pixels_of(data, store=store) for store in ("encoded", "png"))
    raw = np.frombuffer(stored(data, store="raw", short_side=48).data, np.uint8).reshape(48, 48, 3)
    for one, other in itertools.pairwise([encoded[:, 8:56], as_png[:, 8:56], raw]):
        assert np.array_equal(one, other)
