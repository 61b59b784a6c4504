"""Lineage: from what is served to what made it, and from a run to what came of it."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows import lineage
from tasks.errors import ConfigError, DataError, RunError
from tasks.promote.lineage import Lineage, find_lineages
from tasks.promote.promotion import promote, rollback
from tests.promote.conftest import Registered


def find_lineage(reference: str, workspace: Path) -> Lineage:
    """Returns the only lineage of a reference."""
    (found,) = find_lineages(reference, workspace)
    return found


def test_what_is_served_leads_to_its_run_and_the_run_to_what_is_served(
    place: tuple[Path, MlflowClient], every_kind: Registered
) -> None:
    workspace, client = place
    first = promote("every_kind/1", workspace, reason="the first")
    second = promote("every_kind/2", workspace, reason="better")
    back = rollback("every_kind", workspace, reason="it was not")
    found = find_lineage("serving/every_kind/3", workspace)
    run, made = found.run, found.run.provenance
    assert (run.run_id, run.status, run.reproduces) == (every_kind.run.id, "FINISHED", "")
    assert run.config == every_kind.run.config.model_dump(mode="json")
    assert run.data_digest == every_kind.shards.data_digest
    tags = client.get_run(run.mlflow_run_id).data.tags
    assert (made.commit, str(made.dirty).lower()) == (
        tags.get("mlflow.source.git.commit"),
        tags.get("git.dirty", "none"),
    )
    assert made.packages["tensorflow"] == tags["version.tensorflow"]
    assert [(each.version, each.aliases, each.served) for each in found.versions] == [
        (3, (), ()),
        (2, ("previous",), (second,)),
        (1, ("champion",), (first, back)),
    ]
    assert {each.digest for each in found.versions} == {every_kind.model.digest}
    digests = (run.data_digest, run.data_digest[:12], run.key, made.code_digest)
    for reference in ("every_kind@champion", "every_kind/2", "every_kind", run.run_id, run.mlflow_run_id, *digests):
        assert find_lineage(reference, workspace) == found.model_copy(update={"reference": reference})


def test_the_command_prints_the_chain_a_line_for_each_link(
    place: tuple[Path, MlflowClient], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, _ = place
    promoted = promote("every_kind/2", workspace, reason="better")
    monkeypatch.setenv("MILLSTREAM_WORKSPACE", str(workspace))
    lineage.lineage("serving/every_kind/1")
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    names = ["run", "MLflow run", "commit", "code", "config", "data", "environment"]
    assert [name.strip() for name, _ in lines] == [*names, "version", "version", "served", "version"]
    run = find_lineage("every_kind/2", workspace).run
    assert lines[0][1].strip() == f"{run.run_id}  FINISHED on {run.provenance.host}"
    assert lines[5][1].strip() == f"{run.data_digest}, of the source {run.source_digest or '(its manifest is gone)'}"
    assert lines[8][1].strip().startswith("every_kind/2 @champion  registered 20")
    assert lines[9][1].strip() == f"serving/every_kind/1  since {promoted.at}, by {promoted.by}: better"


def test_a_reproduction_and_what_it_repeats_name_each_other(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    first = find_lineage("every_kind/1", workspace).run
    mlflow_run = client.get_run(first.mlflow_run_id)
    tags = {**mlflow_run.data.tags, "millstream.run_id": "again", "millstream.reproduces": first.run_id}
    client.create_run(mlflow_run.info.experiment_id, tags=tags)
    for name in ("millstream.reproduces", "millstream.data_digest"):  # on runs that are not ours
        client.create_run(mlflow_run.info.experiment_id, tags={name: tags[name]})
    assert find_lineage("every_kind/1", workspace).reproductions == ("again",)
    assert [each.run.run_id for each in find_lineages(first.data_digest, workspace)] == ["again", first.run_id]
    again = find_lineage("again", workspace)
    assert (again.run.reproduces, again.versions, again.run.config) == (first.run_id, (), None)


def test_what_leads_to_no_run_is_refused_with_what_there_is(
    place: tuple[Path, MlflowClient], every_kind: Registered
) -> None:
    workspace, client = place
    promote("every_kind/1", workspace, reason="")
    with pytest.raises(
        ConfigError, match=r"serving/every_kind/7: nothing was served under this number in .*; there were 1"
    ):
        find_lineage("serving/every_kind/7", workspace)
    with pytest.raises(ConfigError, match=r"every_kind/9: .* has no such model; it has every_kind/3, every_kind/2"):
        find_lineage("every_kind/9", workspace)
    with pytest.raises(RunError, match=f"no run 'every_kin' in sqlite.*; the newest are: {every_kind.run.id}"):
        find_lineage("every_kin", workspace)
    with pytest.raises(ConfigError, match="must be NAME, NAME@alias or NAME/version"):
        find_lineage("x' or 1=1", workspace)
    experiment = client.create_experiment("by hand")
    by_hand = client.create_run(experiment).info.run_id
    with pytest.raises(DataError, match=f"MLflow run {by_hand}: is not a run of the pipeline's"):
        find_lineage(by_hand, workspace)
    files = client.get_model_version_download_uri("every_kind", "1")
    client.create_model_version("every_kind", files, run_id="0" * 32)
    with pytest.raises(DataError, match=r"every_kind/4: the MLflow run that made it is gone: no run '0{32}'"):
        find_lineage("every_kind/4", workspace)
