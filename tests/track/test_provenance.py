"""Provenance: a run names the code it came from."""

import socket
import subprocess
from importlib import metadata
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.config import build_config
from tasks.models.build import code_digest
from tasks.runs import Run
from tasks.source_code import pipeline_digest
from tasks.track.provenance import Provenance, find_provenance, provenance, write_provenance


def test_the_commit_is_that_of_the_configs_folder(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "model.py"
    file.parent.mkdir()
    file.write_text("width = 1")
    for command in (
        "init --quiet",
        "add .",
        "-c user.name=a -c user.email=a@example.org -c commit.gpgsign=false commit --quiet -m first",
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    found = _provenance(file.parent)
    assert (found.commit, found.dirty) == (head, False)
    assert found.as_tags()["mlflow.source.git.commit"] == head
    file.write_text("width = 2")
    changed = _provenance(file.parent)
    assert (changed.dirty, changed.as_tags()["git.dirty"]) == (True, "true")
    assert changed.code_digest != found.code_digest


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("width = 1")
    found = _provenance(tmp_path)
    assert (found.commit, found.dirty) == (None, None)
    assert "mlflow.source.git.commit" not in found.as_tags()
    assert found.as_tags()["version.numpy"] == metadata.version("numpy")


def test_every_installed_release_the_host_and_the_code_are_named(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("width = 1")
    found = _provenance(tmp_path)
    assert found.requirements().startswith("# Python 3.")
    assert f"\nnumpy=={metadata.version('numpy')}\n" in found.requirements()
    assert found.host == socket.gethostname()
    assert found.code_digest == code_digest(_run(tmp_path).config.model)
    assert found.pipeline_digest == pipeline_digest()


def test_it_is_kept_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("width = 1")
    run = _run(tmp_path)
    assert find_provenance(run) is None
    write_provenance(run, {"prefect.flow_run_name": "nice-owl"})
    found = find_provenance(run)
    assert found == provenance(run.config, {"prefect.flow_run_name": "nice-owl"})
    assert found is not None
    assert found.as_tags()["prefect.flow_run_name"] == "nice-owl"


_WORDS = st.text(st.characters(categories=("L", "N"), include_characters=".-_+ "), min_size=1).map(
    lambda text: f"a{text.strip()}"
)


@given(
    st.builds(
        Provenance,
        host=_WORDS,
        python=_WORDS.filter(lambda word: " on " not in word),
        platform=_WORDS,
        packages=st.dictionaries(_WORDS, _WORDS),
        code_digest=_WORDS,
        pipeline_digest=_WORDS,
        commit=st.none(),
        dirty=st.none(),
        tags=st.just({}),
    ),
    st.none() | st.tuples(_WORDS, st.booleans()),
)
def test_what_mlflow_has_of_it_is_the_whole_of_it(found: Provenance, checkout: tuple[str, bool] | None) -> None:
    if checkout is not None:
        found = found.model_copy(update={"commit": checkout[0], "dirty": checkout[1]})
    sent = found.model_copy(update={"tags": {"prefect.flow_run_name": "nice-owl"}})
    assert Provenance.of_mlflow(sent.as_tags(), sent.requirements()) == found


def _run(folder: Path) -> Run:
    return Run(folder, build_config({"name": "a", "model": {"build": "model:build", "folder": str(folder)}}))


def _provenance(folder: Path) -> Provenance:
    return provenance(_run(folder).config, {})
