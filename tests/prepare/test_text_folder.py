"""Text folders: the same characters as in the file, or the reason why not."""

import re
from pathlib import Path
from typing import Any

import pytest

from tasks.config import DataConfig
from tasks.errors import ConfigError, DataError
from tasks.prepare.source import Batch
from tasks.prepare.text_folder import decode_text, open_text_folder


def read(directory: Path, files: dict[str, bytes], **fields: Any) -> tuple[list[Batch], tuple[str, ...]]:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    source = {"kind": "text_folder", "path": str(directory), **fields}
    opened = open_text_folder(DataConfig.model_validate({"source": source}), directory, list(files))
    feature = opened.schema.features["text"]
    assert (feature.kind, feature.shape, feature.dtype, feature.storage) == ("text", (), "string", "bytes_list")
    return list(opened.read()), opened.notes


def test_texts_are_read_with_label_key_and_row(tmp_path: Path) -> None:
    (batch,), notes = read(tmp_path, {"de/1": b"Katze", "de/2": b"", "en/1": b"cat\r\n\n"})
    assert (batch.rows.tolist(), batch.keys, batch.labels.tolist()) == ([0, 2], ["de/1", "en/1"], [0, 1])
    assert batch.columns == {"text": [b"Katze", b"cat\r\n\n"]}
    assert [(bad.path, bad.reason) for bad in batch.bad] == [("de/2", "is empty")]
    assert (batch.split_by, notes) == (None, ())


def test_any_encoding_is_stored_as_utf8(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16", "utf-16-le", "cp1252", "utf-8-sig"):
        (batch,), notes = read(tmp_path, {f"{name}/1": "Größe".encode(encoding) for name in "ab"}, encoding=encoding)
        assert batch.columns["text"] == ["Größe".encode()] * 2
        assert notes == ()


def test_a_byte_order_mark_is_left_out_and_said(tmp_path: Path) -> None:
    (batch,), notes = read(tmp_path, {"a/1": b"\xef\xbb\xbfone", "b/2": b"two", "b/3": b"\xef\xbb\xbf"})
    assert batch.columns["text"] == [b"one", b"two"]
    assert [bad.reason for bad in batch.bad] == ["is empty"]
    assert notes == ("1 file with a byte order mark: left out of the text (a/1)",)


@pytest.mark.parametrize(
    ("data", "encoding", "reason"),
    [
        (b"ab\xffc", "utf-8", "is not in utf-8 (byte 2 is 0xff: invalid start byte)"),
        (b"Gr\xf6\xdfe", "utf-8", "is not in utf-8 (byte 2 is 0xf6: invalid start byte)"),
        ("ä".encode()[:1], "utf-8", "is not in utf-8 (byte 0 is 0xc3: unexpected end of data)"),
        (b"\xed\xa0\x80", "utf-8", "is not in utf-8 (byte 0 is 0xed: invalid continuation byte)"),
        ("é".encode(), "ascii", "is not in ascii (byte 0 is 0xc3: ordinal not in range(128))"),
        (
            "a".encode("utf-16"),
            "utf-8",
            "is not in utf-8 (byte 0 is 0xff: invalid start byte), but begins as utf-16 does",
        ),
        (
            "ab".encode("utf-16-le"),
            "utf-8",
            "is no text in utf-8 (character 1 is NUL): binary, or of another encoding, such as utf-16",
        ),
        (
            b"a\0",
            "latin-1",
            "is no text in latin-1 (character 1 is NUL): binary, or of another encoding, such as utf-16",
        ),
        (b"abc", "utf-16-le", "is not in utf-16-le (byte 2 is 0x63: truncated data)"),
        (b"", "utf-8", "is empty"),
    ],
)
def test_a_file_that_is_no_text_is_bad_and_its_place_is_named(data: bytes, encoding: str, reason: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole text is compared
        decode_text(data, encoding)
    assert str(error.value) == reason


def test_a_text_over_the_size_is_bad(tmp_path: Path) -> None:
    (batch,), _ = read(tmp_path, {"a/1": b"x" * 1000, "b/2": b"x" * 1001}, max_size="1 KB")
    assert batch.keys == ["a/1"]
    assert [bad.reason for bad in batch.bad] == ["has more than data.source.max_size=1 KB"]


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    for encoding in ("utf8000", "rot13", "hex", "\0"):
        with pytest.raises(ConfigError, match=re.escape(f"data.source.encoding={encoding!r}: ")):
            read(tmp_path, {"a/1": b"x", "b/1": b"x"}, encoding=encoding)


def test_a_file_that_cannot_be_read_is_an_error_and_no_bad_example(tmp_path: Path) -> None:
    config = DataConfig.model_validate({"source": {"kind": "text_folder", "path": "x"}})
    opened = open_text_folder(config, tmp_path, ["a/gone", "b/gone"])
    with pytest.raises(DataError, match=r"a/gone: cannot be read \(No such file or directory\); mend or remove it"):
        list(opened.read())


def test_batches_hold_about_16_mb(tmp_path: Path) -> None:
    files = {f"{'ab'[row % 2]}/{row}": b"x" * 3_000_000 for row in range(8)}
    batches, _ = read(tmp_path, files, max_size="3 MB")
    assert [batch.rows.tolist() for batch in batches] == [[0, 1, 2, 3, 4, 5], [6, 7]]
