"""Remote: what a URL names comes to local disk, whatever the scheme, and its secrets go nowhere else."""

import os
import sys
from pathlib import Path

import pytest

from tasks.config import DataConfig
from tasks.download import fetch
from tasks.download.download import download
from tasks.download.remote import hide_secrets
from tasks.errors import ConfigError, DataError
from tasks.files import verify

DATA = bytes(range(256)) * 10


def config(url: str, **fields: str) -> DataConfig:
    return DataConfig.model_validate({"source": {"kind": "table", "path": url, "target": "y", **fields}})


def test_secrets_are_hidden_in_any_text() -> None:
    text = "Get 'https://ann:p@h/x?t=1': no; s3://b/k and http://h:80/y?a=b&c=d."
    assert hide_secrets(text) == "Get 'https://h/x': no; s3://b/k and http://h:80/y"


def test_file_url_is_copied(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(DATA)
    raw = download(config(f"file://{tmp_path}/x.csv"), tmp_path / "workspace")
    verify(raw.directory)
    assert (raw.directory / "x.csv").read_bytes() == DATA
    (tmp_path / "x.csv").unlink()
    assert download(config(f"file://{tmp_path}/x.csv"), tmp_path / "workspace").reused


def test_folder_and_glob_are_fetched_without_their_junk(tmp_path: Path) -> None:
    own = tmp_path / "own"
    for name in ("a/1.txt", "a/.ipynb_checkpoints/1.txt", "b/2.txt", "b/3.csv", "Thumbs.db"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes(name.encode())
    whole = download(config(f"file://{own}"), tmp_path)
    assert whole.digest == download(config(str(own)), tmp_path).digest
    assert (whole.num_files, (whole.directory / "a" / "1.txt").read_bytes()) == (3, b"a/1.txt")
    some = download(config(f"file://{own}/*/*.txt"), tmp_path)
    assert some.digest == download(config(f"{own}/*/*.txt"), tmp_path).digest
    with pytest.raises(ConfigError, match=r"is of one file, but .* is 3; leave it out"):
        download(config(f"file://{own}", sha256="0" * 64), tmp_path)


@pytest.mark.parametrize("path", ["gone.csv", "gone/*.csv", "empty"])
def test_file_url_of_nothing_is_an_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"data\.source\.path=file://.*holds no files; correct it"):
        download(config(f"file://{tmp_path}/{path}"), tmp_path / "workspace")


def test_file_that_changes_while_it_is_copied_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BACKOFF_SECONDS", 0.001)
    file, take, changes = tmp_path / "x.csv", fetch._take, [DATA[::-1]]
    file.write_bytes(DATA)

    def change_after(*args: object) -> None:
        take(*args)
        for change in changes:
            file.write_bytes(change)
            os.utime(file, (1, 1))
        changes.clear()

    monkeypatch.setattr(fetch, "_take", change_after)
    raw = download(config(f"file://{file}"), tmp_path / "workspace")
    assert (raw.directory / "x.csv").read_bytes() == DATA[::-1]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/x.csv", r"s3://bucket/x\.csv: s3:// needs another package; install it with pip install 'mills"),
        ("gs://bucket/x.csv", r"install it with pip install 'millstream\[gs\]'"),
        (
            "ftp://host/x.csv?session=geheim",
            r"path=ftp://host/x\.csv: must begin with one of https, http, s3, gs, file",
        ),
    ],
)
def test_scheme_that_cannot_be_fetched_says_how_it_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    for package in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=message):
        download(config(url), tmp_path)
