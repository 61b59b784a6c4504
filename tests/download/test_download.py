"""Download: what is fetched is exact, verified and fetched once; what is the user's own stays where it is."""

import gzip
import logging
from pathlib import Path

import pytest

from tasks.config import DataConfig
from tasks.download.digits import find_digits
from tasks.download.download import download, source_digest
from tasks.download.record import RawData
from tasks.errors import ConfigError, DataError
from tasks.files import COMPLETED, digest_bytes, digest_file, digest_json, verify


def table(path: str, **fields: str) -> DataConfig:
    return DataConfig.model_validate({"source": {"kind": "table", "path": path, "target": "y", **fields}})


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


def test_digest_of_the_digits_needs_no_download(tmp_path: Path) -> None:
    assert source_digest(DataConfig(), tmp_path) == download(DataConfig(), tmp_path).digest


def test_users_own_files_stay_where_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own, workspace = tmp_path / "own", tmp_path / "workspace"
    own.mkdir()
    for name in ("b.csv", "a.csv", ".DS_Store"):
        (own / name).write_bytes(name.encode())
    digest = digest_json({"a.csv": digest_bytes(b"a.csv"), "b.csv": digest_bytes(b"b.csv")})
    with caplog.at_level(logging.INFO, "millstream"):
        raw = download(table(str(own)), workspace)
    assert raw == RawData(
        directory=own, pattern=None, fetched=False, digest=digest, num_files=2, size_bytes=10, reused=True
    )
    assert caplog.messages == [
        "download: left out 1 hidden or system file(s), such as .DS_Store",
        "download: table, 2 file(s), 10 bytes, there already",
    ]
    assert source_digest(table(str(own)), workspace) == digest
    assert sorted(file.name for file in own.iterdir()) == [".DS_Store", "a.csv", "b.csv"]
    assert [path.name for path in (workspace / "raw").iterdir()] == [".fingerprints"]


@pytest.mark.parametrize(("path", "pattern"), [("a.csv", "a.csv"), ("*.csv", "*.csv"), ("../own/a*", "a*")])
def test_one_file_or_a_glob_is_a_pattern_in_its_folder(tmp_path: Path, path: str, pattern: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.csv").write_bytes(b"x")
    raw = download(table(f"{own}/{path}"), tmp_path)
    assert (raw.directory, raw.pattern, raw.digest) == (own, pattern, digest_json({"a.csv": digest_bytes(b"x")}))


def test_sha256_of_a_file_on_disk_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x")
    right, wrong = digest_bytes(b"x"), digest_bytes(b"y")
    assert download(table(f"{tmp_path}/a.csv", sha256=right), tmp_path).num_files == 1
    with pytest.raises(DataError, match=f"a.csv: has sha256 {right}, not {wrong} as data.source.sha256 says"):
        download(table(f"{tmp_path}/a.csv", sha256=wrong), tmp_path)
    (tmp_path / "b.csv").write_bytes(b"y")
    with pytest.raises(ConfigError, match=r"is of one file, but .* is 2; leave it out"):
        download(table(f"{tmp_path}/*.csv", sha256=right), tmp_path)


def test_archive_on_disk_is_refused_with_the_way_to_have_it_unpacked(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"x")
    with pytest.raises(ConfigError, match=f"is an archive; write file://{tmp_path}/a.tar.gz to have it unpacked"):
        download(table(f"{tmp_path}/a.tar.gz"), tmp_path)


def test_folder_that_the_workspace_writes_to_is_refused(tmp_path: Path) -> None:
    workspace = tmp_path / "project" / "workspace"
    for folder in ("project", "project/workspace", "project/workspace/data", "project/workspace/data/mine"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "a.csv").write_text("x,y\n1,2\n")
        with pytest.raises(ConfigError, match=rf"path=.*{folder}: is a folder that the workspace .* writes to"):
            download(table(str(tmp_path / folder)), workspace)
    assert download(table(str(tmp_path / "project" / "a.csv")), workspace).num_files == 1
    (workspace / "mine").mkdir()
    (workspace / "mine" / "a.csv").write_text("x,y\n1,2\n")
    assert download(table(str(workspace / "mine")), workspace).num_files == 1
