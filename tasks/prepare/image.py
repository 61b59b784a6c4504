"""StoredImage: one image as it goes into the shards, made from the bytes of a file."""

import io
import re
import warnings
from dataclasses import dataclass

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from tasks.sources import ImageFolderSource

MAX_SIDE = 65_500  # pixels; a JPEG cannot hold more
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "PPM")

# Fewer levels write faster and larger: on photographs 4 is as small as the default of 6, in two thirds of its time.
_PNG_LEVEL = 4

_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_MAGIC = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG",
    "GIF": rb"GIF8",
    "WebP": rb"RIFF....WEBP",
    "BMP": rb"BM",
    "TIFF": rb"II[*+]\x00|MM\x00[*+]",
    "AVIF": rb"....ftypavi[fs]",
    "PNM": rb"P[1-6]\s",
}
_OTHER_MAGIC = {
    "HEIC": rb"....ftyp(hei|hev|mif|msf)",
    "JPEG 2000": rb"\x00\x00\x00\x0cjP  |\xff\x4f\xff\x51",
    "JPEG XL": rb"\xff\x0a|\x00\x00\x00\x0cJXL ",
    "PDF": rb"%PDF",
    "zip archive": rb"PK\x03\x04",
    "gzip": rb"\x1f\x8b",
    "HTML or XML": rb"\s*<[!?a-zA-Z]",
}
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes an image upright, by its EXIF orientation."""

# What TurboJPEG says of a layout that only libjpeg knows, and of damage that costs no pixel: Pillow decodes these.
_LEFT_TO_PILLOW = "subsampling|bad ICC|unknown JFIF revision|Unknown Adobe|Invalid SOS parameters for sequential"

# Tags of a TIFF.
_BITS, _PHOTOMETRIC, _PLANAR, _TILE_WIDTH, _TILE_LENGTH = 258, 262, 284, 322, 323

_TURNED = "turned as their EXIF orientation says"

# Where the low byte stands if the high one is read at the other end; libtiff's N is the order of this machine.
_OTHER_END = {"B": "L", "L": "B", "N": "B" if np.little_endian else "L"}


@dataclass(frozen=True)
class StoredImage:
    """One image as it goes into the shards."""

    data: bytes
    """A JPEG or PNG file, or uint8 pixels [short_side, short_side, channels] for store: raw."""
    remarks: tuple[str, ...]
    """What a user should know of it, each to be read after 'files': 'with transparency: put on white'."""


def prepare_image(data: bytes, source: ImageFolderSource) -> StoredImage | str:
    """Returns an image as `source` wants it stored, or why it cannot be used, as the end of a sentence.

    The format is what the content says. Pixels are upright (EXIF orientation applied), RGB or grey, 8 bits: 16 bits are
    scaled and rounded, transparency is put on white, CMYK converted without a profile, of several frames or pages the
    first is taken. Colour profiles change no value. A YCbCr JPEG's grey is its own luminance, of others ITU-R 601.

    `encoded` keeps the file if TensorFlow shows these very pixels by decode_png, or decode_jpeg with INTEGER_ACCURATE
    (its default is up to 21 levels off); any other becomes a PNG. Resizing is antialiased bicubic, up or down; `raw`
    takes the square in the middle.

    Nothing is decoded that has more than `max_pixels`, and nothing half: a damaged file is never filled up. (A JPEG has
    no checksum: lost or foreign pieces are found, a single changed bit is found only if it upsets what follows.)
    """
    if not data:
        return "is empty"
    if not data.strip(b"\0"):
        return f"holds nothing but {len(data):,} zero bytes"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters of them is decided here
            return _prepare(data, source)
    except Exception as error:  # noqa: BLE001 - Pillow raises whatever a damaged file leads its code to
        return _why_unusable(error, data, source)


def looks_like_image(head: bytes) -> bool:
    """Returns whether a file that begins with `head`, 16 bytes or more, says that it is an image which can be read."""
    return bool(_name(head, _MAGIC))


class _UnusableError(Exception):
    """Says why an image cannot be used, as the end of a sentence."""


def _prepare(data: bytes, source: ImageFolderSource) -> StoredImage:
    with _open(data) as image:
        _check_header(image, source)
        remarks = []
        if getattr(image, "is_animated", False):
            remarks.append("with more than one frame or page: the first was taken")
        if image.format in {"JPEG", "MPO"}:
            orientation = _orientation(image, remarks)
            reason = _why_reencode_jpeg(data, image, orientation)
            if source.store == "encoded" and reason is None:
                if _decode_jpeg(data, "GRAY", smallest=True) is None:  # reads all, which finds damage; computes little
                    image.load()
                return StoredImage(data, tuple(remarks))
            pixels = _jpeg_pixels(data, image, source)
        else:
            raw_mode = _raw_mode(image)
            _load(data, image)
            orientation = _orientation(image, remarks)  # a TIFF is upright when it is loaded
            reason = _why_reencode_png(image, raw_mode, orientation, source.channels)
            if source.store == "encoded" and reason is None:
                return StoredImage(data, tuple(remarks))
            pixels = _pixels(data, image, raw_mode, remarks)
    if source.store == "encoded":
        remarks.append(f"{reason}: re-encoded as lossless PNG")
    pixels = pixels.convert("L" if source.channels == 1 else "RGB")
    if orientation in _UPRIGHT:
        pixels = pixels.transpose(_UPRIGHT[orientation])
    return StoredImage(_encode(_resize(pixels, source), source), tuple(remarks))


def _open(data: bytes) -> ImageFile.ImageFile:
    return Image.open(io.BytesIO(data), formats=FORMATS)


def _check_header(image: ImageFile.ImageFile, source: ImageFolderSource) -> None:
    """Raises _UnusableError if an image is too large to be decoded, or is one that Pillow would decode inexactly."""
    _check_size(*image.size, source)
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    tile_width, tile_height = (tags.get(tag, 1) for tag in (_TILE_WIDTH, _TILE_LENGTH))
    # A tile is decoded whole, however small the image is that it is cut to.
    if tile_width * tile_height > max(source.max_pixels, 2**20):
        raise _UnusableError(f"has tiles of {tile_width} x {tile_height} pixels, over data.source.max_pixels")
    if len(bits := tags.get(_BITS, ())) > 1 and max(bits) > 8 and tags.get(_PLANAR) == 2:
        raise _UnusableError(f"has colours of {max(bits)} bits in planes, which cannot be read exactly")


def _check_size(width: int, height: int, source: ImageFolderSource, when: str = "") -> None:
    if width * height > source.max_pixels:
        raise _UnusableError(
            f"has {width} x {height} pixels{when}, more than data.source.max_pixels={source.max_pixels}"
        )
    if max(width, height) > MAX_SIDE:
        raise _UnusableError(f"has {width} x {height} pixels{when}, and a side may have {MAX_SIDE}")


def _orientation(image: Image.Image, remarks: list[str]) -> int:
    """Returns the EXIF orientation, 1 to 8; 1, and says so, if EXIF cannot be read, as viewers do."""
    try:
        exif = dict(image.getexif())
    except Exception:  # noqa: BLE001 - see prepare_image; the pixels are whole, and that is what counts
        exif = {}
    if image.info.get("exif") and not exif:
        remarks.append("with EXIF that cannot be read: taken to be upright")
    orientation = exif.get(ExifTags.Base.Orientation, 1)
    return orientation if orientation in range(1, 9) else 1


def _why_reencode_jpeg(data: bytes, image: ImageFile.ImageFile, orientation: int) -> str | None:
    """Returns why TensorFlow's decode_jpeg would show other pixels, or none at all; None: the same.

    It ignores the orientation; what is YCbCr or grey and in Huffman code (baseline, extended, progressive) is the same.
    """
    if orientation != 1:
        return _TURNED
    if image.mode == "CMYK":
        return "of JPEG in CMYK"
    if _is_rgb_jpeg(image):
        return "of JPEG in RGB"
    return None if _frame_marker(data) in {0xC0, 0xC1, 0xC2} else "of JPEG in a rare coding"


def _why_reencode_png(image: ImageFile.ImageFile, raw_mode: str, orientation: int, channels: int) -> str | None:
    """Returns why TensorFlow's decode_png would show other pixels of a loaded image, or none at all; None: the same.

    It ignores the orientation, cuts 16 bits, drops transparency and weighs colours otherwise when it makes them grey.
    """
    if image.format != "PNG":
        return f"of format {image.format}"
    if orientation != 1:
        return _TURNED
    if ";16" in raw_mode:
        return "of PNG with 16 bits"
    if image.has_transparency_data:
        return "of PNG with transparency"
    if getattr(image, "is_animated", False):
        return "of animated PNG"
    return None if image.mode in {"1", "L"} or channels == 3 else "of PNG in colour"


def _is_rgb_jpeg(image: Image.Image) -> bool:
    ids = [component[0] for component in getattr(image, "layer", [])]
    return len(ids) == 3 and (image.info.get("adobe_transform") == 0 or ids == [*b"RGB"])


def _frame_marker(data: bytes) -> int:
    """Returns the second byte of a JPEG's SOF marker, which tells the coding; 0 if there is none."""
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return marker
        # A marker may be preceded by any number of 0xFF.
        position += 1 if marker == 0xFF else 2 + int.from_bytes(data[position + 2 : position + 4])
    return 0


def _jpeg_pixels(data: bytes, image: ImageFile.ImageFile, source: ImageFolderSource) -> Image.Image:
    """Returns the pixels of a JPEG, L or RGB; already made smaller, to twice `short_side` or more, where that helps."""
    if image.mode == "CMYK":
        _decode_jpeg(data, "CMYK", smallest=True)
        return image.convert("RGB")
    grey = image.mode == "L" or (source.channels == 1 and not _is_rgb_jpeg(image))
    # Twice is enough for the filter of the resizing that follows, as in Pillow's thumbnail.
    pixels = _decode_jpeg(data, "GRAY" if grey else "RGB", min_side=2 * (source.short_side or 0))
    if pixels is None:
        if grey:
            image.draft("L", None)
        image.load()
        return image
    return Image.fromarray(pixels[..., 0] if grey else pixels)


def _decode_jpeg(data: bytes, colour: str, *, min_side: int = 0, smallest: bool = False) -> NDArray[np.uint8] | None:
    """Returns the pixels [H, W, C]; None if Pillow is to decode them.

    Raises _UnusableError not only for what ends libjpeg, but if it warns that something is lost, where Pillow goes on.
    """
    min_side, min_factor = (1, 8) if smallest else (min_side, 1)
    options = {"colorspace": colour, "min_height": min_side, "min_width": min_side, "min_factor": min_factor}
    try:
        return simplejpeg.decode_jpeg(data, **options, strict=True)
    except ValueError as error:
        if re.search(_LEFT_TO_PILLOW, str(error)):
            return None
        raise _UnusableError(f"is a damaged JPEG ({error})") from None


def _load(data: bytes, image: ImageFile.ImageFile) -> None:
    """Decodes an image; raises what Pillow does, or _UnusableError, if it is damaged."""
    if image.format == "PNG":
        if _PNG_END not in data:
            raise _UnusableError("is a damaged PNG (its end is missing)")
        with _open(data) as checked:
            checked.verify()  # of the checksums of all chunks; loading skips those of the pixels
    image.load()
    if image.format == "PNG" and image.palette is not None:
        colours = len(image.palette.palette) // 3
        if int(np.asarray(image).max()) >= colours:
            raise _UnusableError(f"is a damaged PNG (pixels outside of its palette of {colours} colours)")


def _raw_mode(image: ImageFile.ImageFile) -> str:
    """Returns how the pixels lie in the file, such as RGB;16B; empty if the format does not say."""
    args = image.tile[0].args if image.tile else ""
    return str(args[0] if isinstance(args, tuple) and args else args)


def _pixels(data: bytes, image: ImageFile.ImageFile, raw_mode: str, remarks: list[str]) -> Image.Image:
    """Returns the pixels of a loaded image as 8 bits, transparency put on white; L, RGB or what converts to these."""
    pixels: Image.Image = image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        pixels = _grey_of_16_bits(image)
    elif image.mode in {"I", "F"}:
        raise _UnusableError(f"has pixels of 32 bits (mode {image.mode}), of which nothing says which value is white")
    elif ";16" in raw_mode:
        pixels = _colours_of_16_bits(data, image, raw_mode)
    if pixels.has_transparency_data:
        remarks.append("with transparency: put on white")
        white = Image.new("RGBA", pixels.size, "white")
        pixels = Image.alpha_composite(white, pixels.convert("RGBA"))
    return pixels if pixels.mode in {"1", "L", "RGB"} else pixels.convert("RGB")


def _grey_of_16_bits(image: ImageFile.ImageFile) -> Image.Image:
    values = np.asarray(image).astype(np.uint32)
    tags = getattr(image, "tag_v2", {})
    largest = 2 ** tags.get(_BITS, (16,))[0] - 1  # of a TIFF: 12 or 16
    grey = ((values * 255 + largest // 2) // largest).astype(np.uint8)
    if tags.get(_PHOTOMETRIC) == 0:  # white is zero
        grey = 255 - grey
    pixels = Image.fromarray(grey)
    if (transparent := image.info.get("transparency")) is not None:
        pixels.putalpha(Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8)))
    return pixels


def _colours_of_16_bits(data: bytes, image: ImageFile.ImageFile, raw_mode: str) -> Image.Image:
    """Returns the pixels, each value v of 16 bits as round(v * 255 / 65535).

    Pillow keeps the high bytes only. Read as if the bytes of a value stood the other way round, it keeps the low ones.
    """
    if not re.fullmatch("LA;16B|(RGB|RGBA|CMYK);16[BLN]", raw_mode):
        raise _UnusableError(f"has colours of 16 bits in a rare layout ({raw_mode}) that cannot be read exactly")
    with _open(data) as other:
        swapped = "RGBA" if raw_mode == "LA;16B" else raw_mode[:-1] + _OTHER_END[raw_mode[-1]]
        other.tile = [
            tile._replace(args=(swapped, *tile.args[1:]) if isinstance(tile.args, tuple) else swapped)
            for tile in other.tile
        ]
        low = np.asarray(other).astype(np.int16)
    if raw_mode == "LA;16B":
        low = low[..., [1, 1, 1, 3]]  # read as RGBA: grey high, grey low, alpha high, alpha low
    high = np.asarray(image).astype(np.int16)
    # v * 255 / 65535 = (256 high + low) / 257 = high + (low - high) / 257
    values = (high + (low - high > 128) - (high - low > 128)).astype(np.uint8)
    pixels = Image.frombytes(image.mode, image.size, values.tobytes())
    if (transparent := image.info.get("transparency")) is not None:
        opaque = (high.astype(np.int32) * 256 + low != np.array(transparent)).any(axis=-1)
        pixels.putalpha(Image.fromarray(np.where(opaque, 255, 0).astype(np.uint8)))
    return pixels


def _resize(pixels: Image.Image, source: ImageFolderSource) -> Image.Image:
    """Returns the image with a shorter side of `short_side`; for raw the square in its middle."""
    if source.short_side is None:
        return pixels
    (width, height), side, short = pixels.size, source.short_side, min(pixels.size)
    if source.store == "raw":
        left, top = (width - short) / 2, (height - short) / 2
        return pixels.resize((side, side), Image.Resampling.BICUBIC, (left, top, left + short, top + short))
    width, height = ((2 * length * side + short) // (2 * short) for length in (width, height))
    _check_size(width, height, source, " after resizing")
    return pixels.resize((width, height), Image.Resampling.BICUBIC)


def _encode(pixels: Image.Image, source: ImageFolderSource) -> bytes:
    if source.store == "raw":
        return pixels.tobytes()
    pixels.info = {}  # or the file's profile, comment and transparency would be written again
    buffer = io.BytesIO()
    if source.store == "jpeg":
        pixels.save(buffer, "JPEG", quality=source.quality)
    else:
        pixels.save(buffer, "PNG", compress_level=_PNG_LEVEL)
    return buffer.getvalue()


def _why_unusable(error: Exception, data: bytes, source: ImageFolderSource) -> str:
    """Returns the reason in an error's stead, as the end of a sentence and the same every time."""
    if isinstance(error, _UnusableError):
        return str(error)
    if isinstance(error, Image.DecompressionBombError):
        return f"has more pixels than data.source.max_pixels={source.max_pixels}"
    name = _name(data, _MAGIC)
    if isinstance(error, UnidentifiedImageError):  # its text holds an address in memory
        if name:
            return f"is a damaged or unusual {name}, whose header cannot be read"
        return f"is no image that can be read ({_name(data, _OTHER_MAGIC) or _text_or_not(data)})"
    why = (str(error).splitlines() or [""])[0][:200] or type(error).__name__
    return f"is a damaged {name} ({re.sub(r' at 0x[0-9a-f]+', '', why)})"


def _name(data: bytes, magic: dict[str, bytes]) -> str:
    return next((name for name, start in magic.items() if re.match(start, data[:64], re.DOTALL)), "")


def _text_or_not(data: bytes) -> str:
    head = data[:1024].decode(errors="replace").rstrip("\ufffd")  # its end may be half a character
    return "text" if all(character.isprintable() or character.isspace() for character in head) else "unknown content"
