"""Listing: what a folder or a glob selects, in one order, and every skip is named."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.download.listing import list_files, natural_key
from tasks.errors import DataError


def make(root: Path, *files: str) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"x")
    return root


def test_files_stand_in_natural_order_folder_by_folder(tmp_path: Path) -> None:
    make(tmp_path, "10/b.txt", "10/a.txt", "2/x10.txt", "2/x9.txt", "2-old/y.txt", "1/1.txt", "1/01.txt", "1.txt")
    assert list_files(tmp_path, None).files == (
        *("1/01.txt", "1/1.txt", "1.txt", "2/x9.txt", "2/x10.txt", "2-old/y.txt", "10/a.txt", "10/b.txt"),
    )


@settings(max_examples=50)
@given(st.lists(st.text(), unique=True))
def test_natural_order_is_total(texts: list[str]) -> None:
    backwards = texts[::-1]
    assert sorted(texts, key=natural_key) == sorted(backwards, key=natural_key)
    assert len({repr(natural_key(text)) for text in texts}) == len(texts)


def test_files_are_in_the_order_of_their_natural_keys(tmp_path: Path) -> None:
    files = list_files(make(tmp_path, "b/1", "a10/x", "a9/x", "a/10", "a/9", "a-b/3", "B/1", "ä/1"), None).files
    assert list(files) == sorted(files, key=natural_key)


def test_junk_is_left_out_and_named(tmp_path: Path) -> None:
    junk = [".DS_Store", "a/.ipynb_checkpoints/1-checkpoint.jpg", "__MACOSX/a/._1.jpg", "a/Thumbs.db", "b/desktop.ini"]
    make(tmp_path, "a/1.jpg", "b/2.jpg.part", "_SUCCESS", *junk)
    assert list_files(tmp_path, None).files == ("a/1.jpg",)
    assert set(list_files(tmp_path, None).ignored) == {
        *(
            ".DS_Store",
            "a/.ipynb_checkpoints/",
            "__MACOSX/",
            "a/Thumbs.db",
            "b/desktop.ini",
            "b/2.jpg.part",
            "_SUCCESS",
        ),
    }


def test_our_own_mark_is_no_file_but_a_class_may_have_its_name(tmp_path: Path) -> None:
    listing = list_files(make(tmp_path, "COMPLETED", "a/1.txt", "b/COMPLETED/2.txt"), None)
    assert (listing.files, listing.ignored) == (("a/1.txt", "b/COMPLETED/2.txt"), ())


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.csv", ["1.csv"]),
        ("**/*.csv", ["1.csv", "y=1/2.csv", "y=1/z/3.csv"]),
        ("y=*/*.csv", ["y=1/2.csv"]),
        ("y=*", ["y=1/2.csv", "y=1/z/3.csv", "y=1/z/4.txt"]),
        ("**", ["1.csv", "y=1/2.csv", "y=1/z/3.csv", "y=1/z/4.txt"]),
        ("**/z/**/*.[ct]*", ["y=1/z/3.csv", "y=1/z/4.txt"]),
        ("y=1/**/3.csv", ["y=1/z/3.csv"]),
        ("?.csv", ["1.csv"]),
        (".h.csv", [".h.csv"]),
    ],
)
def test_globs_select_what_they_say(tmp_path: Path, pattern: str, files: list[str]) -> None:
    make(tmp_path, "1.csv", "y=1/2.csv", "y=1/z/3.csv", "y=1/z/4.txt", ".h.csv")
    assert list(list_files(tmp_path, pattern).files) == files


def test_only_junk_that_the_pattern_selects_is_named(tmp_path: Path) -> None:
    make(tmp_path, "1.csv", ".git/x.csv", ".2.csv", ".3.txt")
    assert list_files(tmp_path, "*.csv").ignored == (".2.csv",)


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    root, other = make(tmp_path / "root", "a/1.txt"), make(tmp_path / "other", "2.txt")
    (root / "b").symlink_to(other)
    (root / "a" / "up").symlink_to(root)
    (other / "self").symlink_to(other)
    assert list_files(root, None).files == ("a/1.txt", "b/2.txt")
    assert list_files(root, None).ignored == ("a/up/", "b/self/")


def test_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    make(tmp_path, "1.txt")
    (tmp_path / "2.txt").symlink_to("/nowhere/2.txt")
    with pytest.raises(DataError, match=r"2\.txt: a link to /nowhere/2\.txt, which is not there"):
        list_files(tmp_path, None)


def test_pipes_and_sockets_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "1.txt")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert list_files(tmp_path, None).ignored == ("pipe", "socket")


@pytest.mark.parametrize("pattern", [None, "*.csv"])
def test_nothing_selected_is_an_error_that_says_what_was_left_out(tmp_path: Path, pattern: str | None) -> None:
    make(tmp_path, ".1.csv")
    with pytest.raises(DataError, match=r"holds no files but \.1\.csv; check data\.source\.path"):
        list_files(tmp_path, pattern)


def test_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list_files(tmp_path / "gone", None)


def test_name_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"x")
    with pytest.raises(DataError, match="is not valid UTF-8; rename it"):
        list_files(tmp_path, None)
