"""Staged examples are read a row group at a time; what cannot be used is bad, with the reason."""

import io

import numpy as np
import pytest
from PIL import Image

from tasks.config import DataConfig
from tasks.download.staged import (
    BAD_COLUMN,
    BAD_REASON,
    KEY,
    NUMBER,
    SCHEMA,
    SPLIT,
    TARGET,
    StagedSchema,
    StagedWriter,
)
from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import Feature
from tasks.prepare.staged import open_staged

NUMBERS = Feature(kind="number", shape=(), dtype="int64", storage="int64_list")
TEXT = Feature(kind="text", shape=(), dtype="string", storage="bytes_list")
IMAGE = Feature(kind="image", shape=(None, None, 1), dtype="uint8", storage="bytes_list")


@pytest.fixture
def staged(tmp_path):
    """Writes rows {column: value} as staged examples and opens them under splits and classes."""

    def open_rows(rows, features, *, target="int64", official=None, classes=None, file_bytes=2**29, **config):
        schema = StagedSchema(
            name="mine:read",
            features=features,
            target=target,
            classes=classes,
            split_by=None,
            keyed=KEY in rows[0],
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


def image(mode, fill, kind="png"):
    data = io.BytesIO()
    Image.new(mode, (2, 1), fill).save(data, kind)
    return data.getvalue()


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
        (3, "label", "is 'cow', none of data.source.classes")
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


def test_official_splits_are_mixed_where_others_are_asked_for_and_a_note_says_so(staged):
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


def test_images_are_kept_where_any_decoder_reads_them_alike_and_else_are_png(staged):
    whole = image("L", 7)
    sixteen = io.BytesIO()
    Image.fromarray(np.array([[257, 65535]], np.uint16)).save(sixteen, "png")
    data = [
        whole,
        image("RGB", (9, 9, 9), "bmp"),
        sixteen.getvalue(),
        whole[:-20],
        b"",
        b"\0" * 64,
        image("RGB", 0, "jpeg"),
    ]
    (batch,) = staged([{TARGET: 1, "x": one} for one in data], {"x": IMAGE}).read()
    assert {bad.row: bad.column for bad in batch.bad} == {4: "x", 5: "x", 6: "x"}
    assert all(bad.reason.startswith("is no readable image (") for bad in batch.bad)
    kept, bmp, deep, jpeg = batch.columns["x"]
    assert (kept, jpeg) == (whole, data[-1])
    assert np.asarray(Image.open(io.BytesIO(bmp))).tolist() == [[9, 9]]
    assert np.asarray(Image.open(io.BytesIO(deep))).tolist() == [[1, 255]]


def test_text_that_is_not_utf8_and_what_the_worker_found_are_bad(staged):
    rows = [
        {TARGET: 1, "x": "süß".encode()},
        {TARGET: 1, "x": "süß".encode("latin-1")},
        {BAD_COLUMN: "y", BAD_REASON: "is None"},
    ]
    (batch,) = staged(rows, {"x": TEXT}).read()
    assert batch.columns["x"] == ["süß".encode()]
    assert [(bad.path, bad.row, bad.column, bad.reason) for bad in batch.bad] == [
        ("examples", 2, "x", "is not UTF-8 at byte 2"),
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
