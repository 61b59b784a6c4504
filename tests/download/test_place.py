"""Place: what a source's path stands for."""

import sys
from pathlib import Path

import pytest

from tasks.download.listing import list_files
from tasks.download.place import Place, is_url, locate
from tasks.errors import ConfigError, DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("t.csv", "t[1]*.csv", "y=1/2.csv", "y=1/3.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


def test_folder_is_taken_whole(root: Path) -> None:
    assert locate(str(root)) == locate(f"{root}/y=1/..") == Place(root, None)


def test_file_is_its_name_in_its_folder(root: Path) -> None:
    assert locate(f"{root}/t.csv") == Place(root, "t.csv")


def test_file_with_the_characters_of_a_glob_is_that_file(root: Path) -> None:
    place = locate(f"{root}/t[1]*.csv")
    assert list_files(place.directory, place.pattern).files == ("t[1]*.csv",)


def test_glob_starts_at_the_deepest_plain_folder(root: Path) -> None:
    assert locate(f"{root}/y=*/**/*.csv") == Place(root, "y=*/**/*.csv")
    assert locate(f"{root}/y=1/[23].*") == Place(root / "y=1", "[23].*")


def test_relative_paths_and_home_are_understood(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setenv("HOME", str(root))
    assert locate("t.csv") == locate("~/t.csv") == Place(root, "t.csv")


@pytest.mark.parametrize("path", ["gone.csv", "gone/*.csv", "y=1/gone/x"])
def test_path_that_is_not_there_is_named(root: Path, path: str) -> None:
    with pytest.raises(DataError, match=rf"data\.source\.path={root}/.*gone.*: there is no "):
        locate(f"{root}/{path}")


def test_file_of_an_installed_package_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "explosive"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "data" / "t.csv").write_bytes(b"x")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("package://explosive/data/t.csv") == Place(package / "data", "t.csv")
    assert locate("package://explosive/data") == Place(package / "data", None)
    assert locate("package://explosive/data/*.csv") == Place(package / "data", "*.csv")
    assert "explosive" not in sys.modules
    with pytest.raises(
        DataError, match=r"the installed explosive has no data/u\.csv; install it again with 'pip install"
    ):
        locate("package://explosive/data/u.csv")


def test_package_that_is_not_installed_says_how_to_install_it() -> None:
    with pytest.raises(DataError, match="no package never_made is installed; install it with 'pip install never_made'"):
        locate("package://never_made/x.csv")


@pytest.mark.parametrize("path", ["package://sklearn", "package://", "package:///x", "package://a.b/x"])
def test_package_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="must be package://NAME/FILE"):
        locate(path)


def test_what_has_to_be_fetched_is_a_url() -> None:
    assert [is_url(path) for path in ("https://h/x", "file:///x", "s3://b/x", "package://n/x", "/x", "x")] == [
        *(True, True, True, False, False, False),
    ]
