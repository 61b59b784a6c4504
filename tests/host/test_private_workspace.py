"""A workspace that we make is nobody else's to look into: data, models and the MLflow database."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.download.download import download
from tasks.files import atomic_directory, lock, write_atomic
from tasks.host import doctor
from tasks.prepare.prepare import prepare


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_stage_of_a_new_workspace_makes_it_private(digits, tmp_path):
    workspace = tmp_path / "new" / "workspace"
    raw = download(digits.config.data, workspace)
    prepare("digits", digits.config.data, raw, workspace)
    made = [workspace.parent, workspace, workspace / "raw", raw.directory, workspace / "data"]
    assert [mode(path) for path in made] == [0o700] * 5


@pytest.mark.parametrize("first", ["lock", "file", "directory"])
def test_workspace_is_private_whatever_makes_it(tmp_path, first):
    workspace = tmp_path / "workspace"
    if first == "lock":
        with lock(workspace / ".up.lock"):
            pass
    elif first == "file":
        write_atomic(workspace / first, b"")
    else:
        with atomic_directory(workspace / first):
            pass
    assert mode(workspace) == 0o700


def test_folder_that_is_there_keeps_its_mode_and_the_doctor_says_it(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir(mode=0o755)
    with lock(workspace / "runs" / "lock"):
        pass
    assert (mode(workspace), mode(workspace / "runs")) == (0o755, 0o700)
    found = doctor._workspace(workspace)[0]
    assert (found.status, found.fix) == ("warning", f"chmod 700 {workspace}")
    workspace.chmod(0o700)
    assert doctor._workspace(workspace)[0].status == "ok"
