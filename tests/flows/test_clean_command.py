"""`millstream clean`: shown first, asked at a terminal, refused without one."""

import json
import os
import pty
import sys

import pytest


@pytest.fixture
def littered(millstream, tmp_path):
    """The command in a workspace of its own, and a directory there that nothing needs."""
    command = type(millstream)(tmp_path / "workspace")
    unused = command.workspace / "raw" / "abcd"
    unused.mkdir(parents=True)
    (unused / "x").write_bytes(bytes(2_500_000))
    return command, unused


def test_plan_is_printed_with_sizes_reasons_and_totals(littered):
    command, unused = littered
    printed = command("clean", "--dry-run").stdout
    assert f"2.5 MB  {unused}: no shards that stay were made from it" in printed
    assert "2.5 MB  in all: 1 raw 2.5 MB" in printed
    assert unused.exists()


def test_without_a_terminal_only_yes_removes(littered):
    command, unused = littered
    assert "there is no terminal to ask at; give --yes" in command("clean", code=2).stderr
    assert unused.exists()
    done = command("clean", "--yes", "--json")
    assert [each["path"] for each in json.loads(done.stdout)] == [str(unused)]
    assert "removed 1, 2.5 MB" in done.stderr
    assert not unused.exists()
    assert "nothing to remove" in command("clean").stderr


@pytest.mark.parametrize(("answer", "stays"), [("\n", True), ("y\n", False)])
def test_at_a_terminal_it_asks(littered, answer, stays):
    command, unused = littered
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["MILLSTREAM_WORKSPACE"] = str(command.workspace)
        os.execv(sys.executable, [sys.executable, "-c", "from flows.cli import app; app()", "clean"])  # noqa: S606
    printed = b""
    while b"[y/N]" not in printed:
        printed += os.read(terminal, 4096)
    os.write(terminal, answer.encode())
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
    assert unused.exists() is stays


def test_help_has_an_example(millstream):
    assert "Example: millstream clean" in millstream("clean", "--help").stdout


def test_wrong_rules_are_refused(littered):
    command, _ = littered
    assert "--older-than '3 months': must be" in command("clean", "--older-than", "3 months", code=2).stderr
    command("clean", "--keep-runs", "-1", code=2)
