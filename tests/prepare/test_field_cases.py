"""What people reported from the field, as whole sources: each file and row gets what it should, in shards and notes."""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tasks.config import Config, build_config
from tasks.errors import DataError
from tasks.prepare.manifest import QUARANTINE, Shards
from tasks.prepare.scan import KEYS
from tests.any_source import picture, prepared, read_split


def _config(folder: Path, source: dict[str, Any], **data: Any) -> Config:
    return build_config({"name": "any", "data": {"source": source | {"path": str(folder)}, **data}})


def _examples(shards: Shards) -> dict[str, dict[str, Any]]:
    """Returns all examples by their keys."""
    manifest = shards.manifest()
    keys = pq.read_table(shards.directory / KEYS).to_pydict()
    key_of = dict(zip(keys["id"], keys["key"], strict=True))
    return {
        key_of[each["id"]]: each for split in manifest.splits for each in read_split(shards.directory, manifest, split)
    }


def _file(form: str, image: Image.Image | None = None, **options: Any) -> bytes:
    data = io.BytesIO()
    (image or Image.open(io.BytesIO(picture(3)))).save(data, form, **options)
    return data.getvalue()


def _bomb() -> bytes:
    """A small PNG of 16,000 x 16,000 white pixels (tensorflow#115498)."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big")

    side, packed = 16_000, zlib.compressobj(9)
    row = b"\0" + b"\xff" * (side // 8)
    body = b"".join(packed.compress(row * 100) for _ in range(side // 100)) + packed.flush()
    header = side.to_bytes(4, "big") * 2 + b"\x01\0\0\0\0"
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder with all that people found in theirs."""
    sideways = Image.Exif()
    sideways[0x0112] = 6  # to be turned by 90 degrees
    blue = Image.new("RGB", (6, 8), (0, 0, 255))
    frames = [Image.new("RGB", (6, 8), colour) for colour in ("red", "blue")]
    jpeg = _file("JPEG", Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)))
    files = (
        {f"{name}/{index}.png": picture(index) for name in ("1", "10", "2") for index in range(10)}
        | {
            "1/.ipynb_checkpoints/0-checkpoint.png": picture(0),  # tensorflow#46595
            ".ipynb_checkpoints/1.png": picture(1),
            "__MACOSX/._1.png": b"\0\5\x16\7",
            "10/Thumbs.db": b"junk",
            "2/a.TIF": _file("TIFF"),  # keras#17182
            "2/b.JPG": _file("JPEG"),
            "2/c.jfif": _file("JPEG"),
            "2/d.webp": _file("WEBP", lossless=True),
            "2/e": _file("BMP"),
            "2/png.jpg": picture(3),  # models#2194
            "2/gif.jpg": _file("GIF", frames[0]),
            "2/animated.gif": _file("GIF", frames[0], save_all=True, append_images=frames[1:]),  # tensorflow#24065
            "2/animated.webp": _file("WEBP", frames[0], save_all=True, append_images=frames[1:], lossless=True),
            "2/deep.png": _file("PNG", Image.fromarray(np.full((8, 6), 65535, np.uint16))),
            "2/sideways.jpg": _file("JPEG", blue, exif=sideways),
            "2/nul.jpg": bytes(5000),  # tensorflow#45019
            "2/zero.jpg": b"",
            "2/cut.jpg": jpeg[: len(jpeg) // 2],
            "2/bomb.png": _bomb(),
        }
    )
    for name, data in files.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(data)
    (tmp_path / "data" / "empty").mkdir()
    return tmp_path / "data"


def test_a_folder_of_images_with_everything_in_it(images: Path, tmp_path: Path) -> None:
    config = _config(images, {"kind": "image_folder"}, max_bad_fraction=0.1, num_workers=1)
    shards = prepared(config, tmp_path / "workspace")
    manifest = shards.manifest()
    assert manifest.label_map == ("1", "2", "10")
    bad = [json.loads(line) for line in (shards.directory / QUARANTINE).read_text().splitlines()]
    reasons = {each["path"]: each["reason"] for each in bad}
    assert set(reasons) == {f"2/{name}" for name in ("nul.jpg", "zero.jpg", "cut.jpg", "bomb.png")}
    assert reasons["2/zero.jpg"] == "is empty"
    assert reasons["2/bomb.png"] == "has more pixels than data.source.max_pixels=50000000"
    assert manifest.num_bad == 4
    assert "1 folder without a file: no class, left out (empty)" in manifest.notes
    remarked = " ".join(manifest.notes)
    assert all(f"2/{name}" in remarked for name in ("animated.gif", "animated.webp", "deep.png", "sideways.jpg", "e"))

    examples = _examples(shards)
    assert len(examples) == 30 + 11
    pixels = {key: np.asarray(Image.open(io.BytesIO(each["image"]))) for key, each in examples.items()}
    plain = np.asarray(Image.open(io.BytesIO(picture(3))))
    for name in ("a.TIF", "d.webp", "e", "png.jpg"):
        np.testing.assert_array_equal(pixels[f"2/{name}"], plain)
    for name in ("b.JPG", "c.jfif"):
        assert examples[f"2/{name}"]["image"] == (images / "2" / name).read_bytes()
    for name in ("gif.jpg", "animated.gif", "animated.webp"):
        np.testing.assert_array_equal(pixels[f"2/{name}"], np.full((8, 6, 3), (255, 0, 0)))
    assert pixels["2/deep.png"].min() == 255  # 65535 of 16 bits
    assert pixels["2/sideways.jpg"].shape == (6, 8, 3)


def test_bad_images_over_the_limit_stop_the_stage_and_are_named(images: Path, tmp_path: Path) -> None:
    config = _config(images, {"kind": "image_folder"}, max_bad_fraction=0.05, num_workers=1)
    with pytest.raises(DataError) as refused:
        prepared(config, tmp_path / "workspace")
    first, *listed = str(refused.value).splitlines()
    assert first.startswith("data.max_bad_fraction=0.05: 4 of 45 examples cannot be used; mend or remove them")
    assert [line.split()[0] for line in listed] == [
        f"2/{name}" for name in ("bomb.png", "cut.jpg", "nul.jpg", "zero.jpg")
    ]
    assert list(tmp_path.glob("workspace/data/**/COMPLETED")) == []


def test_a_table_whose_first_megabytes_say_nothing_of_the_rest(tmp_path: Path) -> None:
    # arrow#49338 (empty, then integers, then floats), arrow#10892 (tokens), pandas#52505 (19 digits).
    num_rows = 60_000

    def row(index: int) -> tuple[str, str, str]:
        late = "" if index < 40_000 else str(index) if index < num_rows - 1 else "0.1"
        return late, ("NA", "-", "NULL", "")[index % 4] if index % 3 else "1.5", str(2**63 - 1 - index)

    (tmp_path / "data").mkdir()
    with open(tmp_path / "data" / "a.csv", "w") as file:
        file.write("late,gaps,long,filler,label\n")
        file.writelines(f"{','.join(row(index))},{'x' * 60},{index % 3 + 1}\n" for index in range(num_rows))
    assert (tmp_path / "data" / "a.csv").stat().st_size > 4 << 20
    source = {"kind": "table", "target": "label", "missing": "keep", "null_tokens": ["", "NA", "-", "NULL"]}
    shards = prepared(_config(tmp_path / "data", source), tmp_path / "workspace")
    manifest = shards.manifest()
    assert manifest.label_map == ("1", "2", "3")  # tensorflow#15962: labels that begin with 1
    assert [manifest.features[name].dtype for name in ("late", "gaps", "long")] == ["float64", "float64", "int64"]
    examples = _examples(shards)
    assert len(examples) == num_rows
    for index in (0, 1, 2, 3, 39_999, 40_000, num_rows - 2, num_rows - 1):
        late, gaps, long = row(index)
        found = examples[f"a.csv:{index + 1}"]
        assert (found["late"], found["late_missing"]) == (float(late or 0), int(not late))
        assert (found["gaps"], found["gaps_missing"]) == ((1.5, 0) if gaps == "1.5" else (0, 1))
        assert (found["long"], found["label"]) == (int(long), index % 3)


@pytest.mark.parametrize(
    ("bad", "column", "reason"),
    [
        ("oops,1,a", "x", "is 'oops', not a whole number"),
        ("1,9223372036854775808,a", "n", "is 9223372036854775808"),
        ("1,2", None, "has 2 values, not 3"),
        ("1,2,", "y", "is missing"),
        (",2,a", "x", "is missing"),
        ("1,2,c", "y", "is 'c', which is not one of data.source.classes"),
    ],
)
def test_a_bad_row_is_named_by_row_and_column_wherever_it_is(
    tmp_path: Path, bad: str, column: str | None, reason: str
) -> None:
    (tmp_path / "data").mkdir()
    for number in (0, 17, 29):
        rows = [f"{index},{index},{'ab'[index % 2]}" for index in range(30)]
        rows[number] = bad
        (tmp_path / "data" / "a.csv").write_text("x,n,y\n" + "\n".join(rows) + "\n")
        types = {"x": "int64", "n": "int64"}
        source = {"kind": "table", "target": "y", "types": types, "classes": ["a", "b"]}
        shards = prepared(_config(tmp_path / "data", source, max_bad_fraction=0.1), tmp_path / "workspace")
        [line] = (shards.directory / QUARANTINE).read_text().splitlines()
        found = json.loads(line)
        assert (found["path"], found["row"], found["column"]) == ("a.csv", number + 1, column)
        assert found["reason"].startswith(reason)
        kept = {key: example["x"] for key, example in _examples(shards).items()}
        assert kept == {f"a.csv:{index + 1}": index for index in range(30) if index != number}
