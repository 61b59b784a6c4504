"""Staged examples are read a row group at a time; what cannot be used is bad, with the reason."""

import re

import numpy as np
import pytest
from PIL import ExifTags, Image

from tasks.config import DataConfig
from tasks.download.staged import (
    BAD_COLUMN,
    BAD_REASON,
    KEY,
    NUMBER,
    SCHEMA,
    SPLIT,
    SPLIT_BY,
    TARGET,
    StagedSchema,
    StagedWriter,
)
from tasks.errors import ConfigError, DataError
from tasks.prepare.image_folder import open_image_folder
from tasks.prepare.manifest import Feature
from tasks.prepare.staged import open_staged
from tests.prepare.pictures import PHOTO, file_of

NUMBERS = Feature(kind="number", shape=(), dtype="int64", storage="int64_list")
TEXT = Feature(kind="text", shape=(), dtype="string", storage="bytes_list")
IMAGE = Feature(kind="image", shape=(None, None, 1), dtype="string", storage="bytes_list")


@pytest.fixture
def staged(tmp_path):
    """Writes rows {column: value} as staged examples and opens them under splits and classes."""

    def open_rows(rows, features, *, target="int64", official=None, classes=None, file_bytes=2**29, **config):
        schema = StagedSchema(
            name="mine:read",
            features=features,
            target=target,
            classes=classes,
            split_by="string" if SPLIT_BY in rows[0] else None,
            splits=official or {},
            notes=(),
        )
        with StagedWriter(tmp_path, schema.columns(), file_bytes=file_bytes) as writer:
            for start in range(0, len(rows), 16):
                writer.add_rows([{NUMBER: start + n, **row} for n, row in enumerate(rows[start : start + 16], start=1)])
        schema.write(tmp_path / SCHEMA)
        source = {"kind": "array", "read": "mine:read", **config.pop("source", {})}
        return open_staged(DataConfig.model_validate({"source": source, **config}), tmp_path)

    return open_rows


def test_examples_come_in_batches_of_16_mb_from_several_files(staged, tmp_path):
    rows = [{TARGET: n % 3, "text": bytes([65 + n % 26]) * 1024**2} for n in range(40)]
    source = staged(rows, {"text": TEXT}, file_bytes=2**24)
    assert len(list(tmp_path.glob("examples-*.parquet"))) == 3
    batches = list(source.read())
    assert max(len(batch.rows) for batch in batches) <= 16
    assert np.concatenate([batch.rows for batch in batches]).tolist() == list(range(40))
    assert [key for batch in batches for key in batch.keys] == [f"examples:{n}" for n in range(1, 41)]
    assert [text for batch in batches for text in batch.columns["text"]] == [row["text"] for row in rows]
    assert [list(batch.keys) for batch in source.read()] == [list(batch.keys) for batch in batches]


@pytest.mark.parametrize(
    ("target", "values", "label_map"),
    [
        ("int64", [10, 9, -1], ("-1", "9", "10")),
        ("string", ["a10", "b", "a9"], ("a9", "a10", "b")),
        ("bool", [True, False], ("false", "true")),
        ("float64", [3.0, 2.0], ("2", "3")),
    ],
)
def test_classes_are_numbered_in_natural_order(staged, target, values, label_map):
    source = staged([{TARGET: value, "x": 1} for value in values], {"x": NUMBERS}, target=target)
    assert source.schema.label_map == label_map
    (batch,) = source.read()
    assert [label_map[label] for label in batch.labels] == [str(value).lower().removesuffix(".0") for value in values]


def test_a_class_that_the_config_does_not_name_is_bad(staged):
    rows = [{TARGET: value, "x": 1} for value in ("cat", "dog", "cow")]
    source = staged(rows, {"x": NUMBERS}, target="string", source={"classes": ["dog", "cat"]})
    (batch,) = source.read()
    assert batch.labels.tolist() == [1, 0]
    assert [(bad.row, bad.column, bad.reason) for bad in batch.bad] == [
        (3, "label", "is 'cow', which is not one of data.source.classes")
    ]


def test_a_label_outside_its_classes_is_bad(staged):
    rows = [{TARGET: value, "x": 1} for value in (0, 2, -1)]
    (batch,) = staged(rows, {"x": NUMBERS}, target="class", classes=("a", "b")).read()
    assert [(bad.row, bad.reason[:32]) for bad in batch.bad] == [
        (2, "is 2, not one of the 2 classes 0"),
        (3, "is -1, not one of the 2 classes "),
    ]


SPLIT_ROWS = [{TARGET: int(name != "extra"), SPLIT: name, "x": 1} for name in ("train", "extra", "test", "train")]
OFFICIAL = {"train": 2, "extra": 1, "test": 1}


def test_official_splits_that_are_not_wanted_are_left_out_with_a_note(staged):
    splits = {"kind": "official", "validation": 0.2}
    source = staged(SPLIT_ROWS, {"x": NUMBERS}, official=OFFICIAL, splits=splits)
    assert source.notes == ("the official split extra with 1 example(s) is left out",)
    assert source.schema.label_map == ("1",)
    (batch,) = source.read()
    assert (batch.rows.tolist(), list(batch.split_by)) == ([0, 2, 3], ["train", "test", "train"])


def test_official_splits_are_mixed_where_other_splits_are_asked_for_and_a_note_says_so(staged):
    source = staged(SPLIT_ROWS, {"x": NUMBERS}, official=OFFICIAL)
    assert source.notes == ("the official splits train, extra, test are mixed, for data.splits.kind is not official",)
    (batch,) = source.read()
    assert (len(batch.rows), batch.split_by) == (4, None)


@pytest.mark.parametrize(
    ("official", "message"),
    [
        (OFFICIAL, "validation='validation': mine:read has no such split; it has train, extra, test, and a number"),
        ({}, "data.splits.kind=official: mine:read has no official splits; use fraction"),
    ],
)
def test_an_official_split_that_is_not_there_is_refused(staged, official, message):
    with pytest.raises(ConfigError, match=message):
        staged(SPLIT_ROWS, {"x": NUMBERS}, official=official, splits={"kind": "official"})


def files() -> dict[str, bytes]:
    """Images of every trouble, whole and not, by a name that sorts them."""
    deep = np.arange(300, 300 + 48 * 64, dtype=np.uint16).reshape(48, 64) * 20
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    jpeg = file_of(PHOTO, "JPEG")
    images = [
        file_of(PHOTO, "PNG"),
        jpeg,
        file_of(PHOTO, "JPEG", exif=exif),
        file_of(Image.fromarray(PHOTO).convert("CMYK"), "JPEG"),
        file_of(deep, "PNG"),
        file_of(Image.fromarray(PHOTO).convert("RGBA"), "PNG"),
        file_of(PHOTO, "BMP"),
        jpeg[: len(jpeg) // 2],
        file_of(PHOTO, "PNG")[:-20],
        b"",
        bytes(64),
        b"words",
        file_of(np.zeros((49, 64), np.uint8), "PNG"),
    ]
    return {f"{number:02}": data for number, data in enumerate(images)}


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_stored_as_one_of_an_image_folder(staged, tmp_path, channels):
    most = {"max_pixels": 48 * 64}
    folder = tmp_path / "folder"
    for name, data in files().items():
        (folder / "ab"[int(name) % 2]).mkdir(parents=True, exist_ok=True)
        (folder / "ab"[int(name) % 2] / name).write_bytes(data)
    paths = [f"{'ab'[int(name) % 2]}/{name}" for name in files()]
    source = {"kind": "image_folder", "path": str(folder), "channels": channels, **most}
    of_folder = open_image_folder(DataConfig.model_validate({"source": source}), folder, paths)
    (expected,) = of_folder.read()
    rows = [{TARGET: int(name) % 2, KEY: name, "x": data} for name, data in files().items()]
    feature = IMAGE.model_copy(update={"shape": (None, None, channels)})
    of_staged = staged(rows, {"x": feature}, source=most)
    (batch,) = of_staged.read()
    assert of_staged.schema.features == {"x": of_folder.schema.features["image"]}
    assert batch.rows.tolist() == expected.rows.tolist() == list(range(7))
    assert batch.labels.tolist() == expected.labels.tolist()
    assert batch.columns["x"] == expected.columns["image"]
    assert [(bad.row, bad.column) for bad in batch.bad] == [(row, "x") for row in range(8, 14)]
    assert [bad.reason for bad in batch.bad] == [bad.reason for bad in expected.bad]
    as_files = [re.sub(r"example(s?) ", r"file\1 ", note) for note in of_staged.notes]
    assert as_files == [re.sub("[ab]/", "", note) for note in of_folder.notes]
    assert len(as_files) >= 4


def test_images_keep_their_order_over_row_groups(staged):
    data = [file_of(np.full((1, 1), n % 256, np.uint8), "PNG") for n in range(100)]
    rows = [{TARGET: n % 2, "x": data[n] if n % 7 else b"", "pad": bytes([65]) * 2**19} for n in range(100)]
    batches = list(staged(rows, {"x": IMAGE, "pad": TEXT}).read())
    assert len(batches) > 1
    assert [row for batch in batches for row in batch.rows] == [n for n in range(100) if n % 7]
    assert [image for batch in batches for image in batch.columns["x"]] == [data[n] for n in range(100) if n % 7]
    assert [bad.row for batch in batches for bad in batch.bad] == [n + 1 for n in range(0, 100, 7)]


def test_names_that_no_feature_can_have_are_changed_and_said(staged):
    source = staged([{TARGET: 1, "petal length (cm)": 2, "x": 3}], {"petal length (cm)": NUMBERS, "x": NUMBERS})
    assert source.schema.inputs == ("petal_length_cm", "x")
    assert source.notes == (
        "inputs renamed, because no model input can have such a name: petal length (cm) is petal_length_cm",
    )
    (batch,) = source.read()
    assert (batch.columns["petal_length_cm"].tolist(), batch.columns["x"].tolist()) == ([2], [3])


def test_a_pattern_takes_the_group_out_of_its_column(staged):
    rows = [{TARGET: 1, "x": 1, SPLIT_BY: who} for who in ("patient7-a", "patient7-b", "nobody")]
    splits = {"kind": "group", "column": "who", "pattern": r"patient(\d+)"}
    (batch,) = staged(rows, {"x": NUMBERS}, splits=splits).read()
    assert list(batch.split_by) == ["7", "7"]
    assert [(bad.row, bad.column, bad.reason) for bad in batch.bad] == [
        (3, "who", r"is 'nobody', without 'patient(\\d+)'")
    ]


def test_numbers_to_predict_are_no_classes_here_either(staged):
    with pytest.raises(ConfigError, match=r"'label' is 0\.5, not a class.*regression"):
        staged([{TARGET: value, "x": 1} for value in (1.0, 0.5)], {"x": NUMBERS}, target="float64")


def test_text_that_is_not_utf8_and_what_the_worker_found_are_bad(staged):
    rows = [
        {TARGET: 1, "x": "süß".encode()},
        {TARGET: 1, "x": "süß".encode("latin-1")},
        {BAD_COLUMN: "y", BAD_REASON: "is None"},
    ]
    (batch,) = staged(rows, {"x": TEXT}).read()
    assert batch.columns["x"] == ["süß".encode()]
    assert [(bad.path, bad.row, bad.column, bad.reason) for bad in batch.bad] == [
        ("examples", 2, "x", r"is b's\xfc\xdf', not UTF-8"),
        ("examples", 3, "y", "is None"),
    ]


def test_files_that_are_damaged_or_gone_are_named(staged, tmp_path):
    source = staged([{TARGET: 1, "x": 1}], {"x": NUMBERS})
    file = tmp_path / "examples-00000.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"examples-00000.parquet: cannot be read .*; delete .* and run again"):
        list(source.read())
    file.unlink()
    with pytest.raises(DataError, match=r"has no examples-\*.parquet"):
        list(source.read())
