"""Provenance: a run names the code it came from."""

import subprocess
from importlib import metadata
from pathlib import Path

from tasks.track.provenance import provenance_tags, requirements


def test_the_commit_is_that_of_the_configs_folder(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "a.yaml"
    file.parent.mkdir()
    file.write_text("name: a")
    for command in (
        "init --quiet",
        "add .",
        "-c user.name=a -c user.email=a@example.org -c commit.gpgsign=false commit --quiet -m first",
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    tags = provenance_tags(file.parent)
    assert (tags["mlflow.source.git.commit"], tags["git.dirty"]) == (head, "false")
    file.write_text("name: b")
    assert provenance_tags(file.parent)["git.dirty"] == "true"


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    tags = provenance_tags(tmp_path)
    assert "mlflow.source.git.commit" not in tags
    assert tags["version.numpy"] == metadata.version("numpy")


def test_requirements_name_every_installed_release() -> None:
    lines = requirements().splitlines()
    assert lines[0].startswith("# Python 3.")
    assert f"numpy=={metadata.version('numpy')}" in lines
