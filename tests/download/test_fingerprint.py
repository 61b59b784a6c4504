"""Fingerprint: unchanged files are not read again, and no change goes unseen."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.download import fingerprint as module
from tasks.download.fingerprint import assert_unchanged, fingerprint
from tasks.errors import DataError
from tasks.files import digest_bytes, digest_json


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for name, data in {"a/1.txt": b"one", "a/2.txt": b"two", "b/3.txt": b""}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def settled(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files, counted as old: their stamps are trusted at once."""
    monkeypatch.setattr(module, "YOUNG_SECONDS", -60)
    return root


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read, as they are read."""
    names, digest_file = [], module.digest_file

    def spy(path: Path) -> str:
        names.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(module, "digest_file", spy)
    return names


def test_digest_is_over_names_and_contents(root: Path, tmp_path: Path) -> None:
    found = fingerprint(root, None, tmp_path)
    contents = {"a/1.txt": digest_bytes(b"one"), "a/2.txt": digest_bytes(b"two"), "b/3.txt": digest_bytes(b"")}
    assert (found.digest, found.size_bytes) == (digest_json(contents), 6)
    assert list(found.sha256) == list(found.listing.files) == list(contents)


def test_digest_is_the_same_wherever_the_files_lie(root: Path, tmp_path: Path) -> None:
    before = fingerprint(root, None, tmp_path).digest
    assert fingerprint(root.rename(tmp_path / "moved"), None, tmp_path).digest == before


def test_second_fingerprint_reads_nothing(settled: Path, tmp_path: Path, reads: list[str]) -> None:
    first = fingerprint(settled, None, tmp_path)
    assert sorted(reads) == ["1.txt", "2.txt", "3.txt"]
    reads.clear()
    assert fingerprint(settled, None, tmp_path) == first
    assert reads == []


def test_only_what_changed_is_read_again(settled: Path, tmp_path: Path, reads: list[str]) -> None:
    first = fingerprint(settled, None, tmp_path)
    reads.clear()
    (settled / "a" / "2.txt").write_bytes(b"TWO")
    second = fingerprint(settled, None, tmp_path)
    assert reads == ["2.txt"]
    assert second.sha256 == {**first.sha256, "a/2.txt": digest_bytes(b"TWO")}


def test_change_that_sets_the_old_time_is_seen(settled: Path, tmp_path: Path) -> None:
    first, file = fingerprint(settled, None, tmp_path), settled / "a" / "2.txt"
    before = file.stat()
    time.sleep(0.05)  # a tick of the file system's clock
    file.write_bytes(b"TWO")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fingerprint(settled, None, tmp_path).digest != first.digest


def test_files_that_were_only_just_written_are_read_again(root: Path, tmp_path: Path, reads: list[str]) -> None:
    fingerprint(root, None, tmp_path)
    reads.clear()
    old = time.time() - 60
    os.utime(root / "a" / "1.txt", (old, old))  # the time of its status is new all the same
    fingerprint(root, None, tmp_path)
    assert sorted(reads) == ["1.txt", "2.txt", "3.txt"]


def test_what_was_read_before_an_interruption_is_not_read_again(
    settled: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: 1)
    spy = module.digest_file

    def interrupted(path: Path) -> str:
        if path.name == "3.txt":
            raise KeyboardInterrupt
        return spy(path)

    monkeypatch.setattr(module, "digest_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fingerprint(settled, None, tmp_path)
    monkeypatch.setattr(module, "digest_file", spy)
    reads.clear()
    fingerprint(settled, None, tmp_path)
    assert reads == ["3.txt"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format":1,"files":["a/1.txt"],"stamps":[],"sha256":[]}'])
def test_damaged_memory_is_dropped_with_a_warning(
    settled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    first = fingerprint(settled, None, tmp_path)
    (memory,) = (tmp_path / "raw" / ".fingerprints").iterdir()
    memory.write_bytes(damage)
    assert fingerprint(settled, None, tmp_path) == first
    assert f"{memory}: damaged" in caplog.text
    caplog.clear()
    assert fingerprint(settled, None, tmp_path) == first
    assert caplog.text == ""


def test_long_reading_says_how_far_it_is(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.progress.LINE_SECONDS", 0)
    with caplog.at_level(logging.INFO, "millstream"):
        fingerprint(root, None, tmp_path)
    assert "download: fingerprint of 3 file(s): 0.0 of 0.0 MB" in caplog.text


def test_files_that_stay_pass(root: Path, tmp_path: Path) -> None:
    before = fingerprint(root, None, tmp_path)
    (root / "a" / "1.txt").chmod(0o600)  # no change of the content
    assert_unchanged(before)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewritten": (lambda root: (root / "a" / "2.txt").write_bytes(b"TWO"), "2.txt: changed while it was read"),
    "same again": (lambda root: (root / "a" / "2.txt").write_bytes(b"two"), "2.txt: changed while it was read"),
    "longer": (lambda root: (root / "a" / "2.txt").write_bytes(b"two and"), "2.txt: changed while it was read"),
    "replaced": (lambda root: os.replace(root / "a" / "1.txt", root / "a" / "2.txt"), "1.txt: vanished while"),
    "removed": (lambda root: (root / "a" / "2.txt").unlink(), "2.txt: vanished while it was read"),
    "new": (lambda root: (root / "a" / "4.txt").write_bytes(b"4"), "4.txt: appeared while it was read"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_change_while_reading_is_refused(
    root: Path, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    before = fingerprint(root, None, tmp_path)
    time.sleep(0.05)  # a tick of the file system's clock
    change(root)
    with pytest.raises(DataError, match=message):
        assert_unchanged(before)


def test_young_file_is_read_again_at_the_end_for_its_time_may_not_tell(root: Path, tmp_path: Path) -> None:
    before, file = fingerprint(root, None, tmp_path), root / "a" / "2.txt"
    file.write_bytes(b"TWO")
    status = file.stat()
    # As if all happened within one tick.
    same_tick = (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)
    before = module.Fingerprint(
        root, None, before.listing, {**before.stamps, "a/2.txt": same_tick}, before.sha256, before.young
    )
    with pytest.raises(DataError, match="changed while it was read"):
        assert_unchanged(before)
