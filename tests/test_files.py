"""Files: nothing half-written is trusted, and a lock dies with its process."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.errors import DataError
from tasks.files import (
    COMPLETED,
    Record,
    atomic_directory,
    digest_bytes,
    digest_file,
    digest_json,
    is_completed,
    lock,
    verify,
    write_atomic,
)


class Count(Record):
    count: int


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with atomic_directory(tmp_path / "made") as directory:
        (directory / "a.txt").write_bytes(b"alpha")
        (directory / "below").mkdir()
        (directory / "below" / "b.txt").write_bytes(b"beta")
    return tmp_path / "made"


def test_completed_directory_records_sizes_and_digests(written: Path) -> None:
    assert json.loads((written / COMPLETED).read_text()) == {
        "a.txt": {"size_bytes": 5, "sha256": "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"},
        "below/b.txt": {"size_bytes": 4, "sha256": digest_bytes(b"beta")},
    }
    verify(written)
    assert sorted(path.name for path in written.parent.iterdir()) == ["made"]


def test_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _fail_halfway(tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_exception_leaves_the_directory_that_was_there(written: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        _fail_halfway(written)
    verify(written)
    assert (written / "a.txt").read_bytes() == b"alpha"


def test_killed_writer_leaves_nothing_that_is_trusted_and_the_next_begins_anew(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with _process(
        "with atomic_directory(Path(sys.argv[1])) as directory:\n"
        "    (directory / 'half.txt').write_text('half')\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n",
        made,
    ) as process:
        process.kill()
    assert (made.with_name("made.incomplete") / "half.txt").exists()
    assert not is_completed(made)
    with atomic_directory(made) as directory:
        assert list(directory.iterdir()) == []
        (directory / "a.txt").write_text("whole")
    verify(made)
    assert sorted(path.name for path in made.iterdir()) == [COMPLETED, "a.txt"]


def test_new_directory_takes_the_place_of_the_old(written: Path) -> None:
    with atomic_directory(written) as directory:
        (directory / "c.txt").write_text("gamma")
    verify(written)
    assert sorted(path.name for path in written.iterdir()) == [COMPLETED, "c.txt"]


def test_verify_names_a_missing_a_cut_and_a_changed_file(written: Path) -> None:
    file = written / "below" / "b.txt"
    file.write_bytes(b"bEta")
    with pytest.raises(DataError) as changed:
        verify(written)
    file.write_bytes(b"bet")
    with pytest.raises(DataError) as cut:
        verify(written)
    file.unlink()
    with pytest.raises(DataError) as missing:
        verify(written)
    mend = f"delete {written} and run again"
    assert str(changed.value) == f"{file}: content has changed since it was written; {mend}"
    assert str(cut.value) == f"{file}: has 3 bytes, not 4; {mend}"
    assert str(missing.value) == f"{file}: missing; {mend}"


def test_verify_refuses_a_directory_that_was_never_finished(written: Path) -> None:
    (written / COMPLETED).unlink()
    with pytest.raises(DataError, match="has no COMPLETED: it was never written to its end; run the stage again"):
        verify(written)


def test_verify_refuses_a_damaged_receipt(written: Path) -> None:
    (written / COMPLETED).write_text("{")
    with pytest.raises(DataError, match="COMPLETED: damaged"):
        verify(written)


def test_write_atomic_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    write_atomic(tmp_path / "new" / "a", b"one")
    write_atomic(tmp_path / "new" / "a", b"two")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("a", b"two")]


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    Count(count=3).write(tmp_path / "count.json")
    assert Count.read(tmp_path / "count.json") == Count(count=3)


@pytest.mark.parametrize("text", [None, "", "{", '{"count": "many"}', '{"count": 3, "more": 1}'])
def test_file_that_is_no_record_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "count.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=r"count\.json: no readable Count"):
        Count.read(path)


def test_digests_are_sha256_and_blind_to_the_order_of_keys(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert digest_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_json({"a": 1, "b": [2]}) == digest_json({"b": [2], "a": 1}) == digest_bytes(b'{"a":1,"b":[2]}')


def test_lock_in_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(DataError, match=r"cannot be written \(Not a directory\); set MILLSTREAM_WORKSPACE"),
        lock(tmp_path / "file" / "below" / "lock"),
    ):
        pass


def test_lock_is_held_by_one_and_dies_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "below" / "lock"
    with _process(
        "with lock(Path(sys.argv[1])):\n    print('ready', flush=True)\n    time.sleep(60)\n", path
    ) as process:
        with pytest.raises(TimeoutError, match="is held by another process"), lock(path, timeout_seconds=0):
            pass
        process.kill()
        with lock(path, timeout_seconds=10):
            pass


def _fail_halfway(target: Path) -> None:
    with atomic_directory(target) as directory:
        (directory / "a.txt").write_text("half")
        raise ZeroDivisionError


@contextmanager
def _process(script: str, argument: Path) -> Iterator[subprocess.Popen[str]]:
    """Yields another process that has come to where the script prints `ready`; it is gone after the block."""
    head = "import sys, time\nfrom pathlib import Path\nfrom tasks.files import atomic_directory, lock\n"
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", head + script, str(argument)], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
