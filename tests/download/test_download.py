"""Download: the raw directory is exact, verified and fetched once."""

import gzip
import logging
from pathlib import Path

import pytest

from tasks.config import DataConfig
from tasks.download.digits import find_digits
from tasks.download.download import download
from tasks.files import COMPLETED, digest_file, digest_json, verify


def test_raw_directory_holds_the_packaged_file_under_its_digest(tmp_path: Path) -> None:
    raw = download(DataConfig(), tmp_path)
    digest = digest_json({"digits.csv.gz": digest_file(find_digits())})
    assert (raw.digest, raw.directory, raw.reused) == (digest, tmp_path / "raw" / digest, False)
    assert sorted(file.name for file in raw.directory.iterdir()) == [COMPLETED, "digits.csv.gz"]
    assert (raw.num_files, raw.size_bytes) == (1, find_digits().stat().st_size)
    assert len(gzip.decompress((raw.directory / "digits.csv.gz").read_bytes()).splitlines()) == 1797


def test_second_download_fetches_nothing(tmp_path: Path) -> None:
    first = download(DataConfig(), tmp_path)
    (file,) = first.directory.glob("digits.csv.gz")
    before = file.stat()
    assert download(DataConfig(), tmp_path) == first.model_copy(update={"reused": True})
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("file", ["digits.csv.gz", COMPLETED])
def test_damaged_directory_is_fetched_again_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    raw = download(DataConfig(), tmp_path)
    (raw.directory / file).write_bytes(b"cut sho")
    with caplog.at_level(logging.WARNING, "millstream"):
        assert not download(DataConfig(), tmp_path).reused
    assert file in caplog.text
    verify(raw.directory)
    assert (raw.directory / "digits.csv.gz").read_bytes() == find_digits().read_bytes()
