"""Reproduction: refused by name for whatever has changed since, and held against the first run to the bit."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient

from tasks import events
from tasks.config import build_config
from tasks.download.download import download
from tasks.errors import ConfigError, DataError, RunError
from tasks.models.build import code_digest
from tasks.prepare.prepare import prepare
from tasks.promote.lineage import find_lineages
from tasks.promote.reproduction import (
    SUBJECTS,
    Difference,
    Plan,
    Present,
    Reproduction,
    compare_with_first,
    find_differences,
    plan_reproduction,
)
from tasks.runs import Run, open_run
from tasks.track.client import open_client
from tasks.track.provenance import Provenance
from tasks.track.recorded import Recorded
from tasks.track.tracker import tracked
from tasks.train.checkpoint import Position, path_of, save
from tests.track.finished_runs import eval_report, log_epochs, train_result

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
ROWS = "weight,kind\n" + "".join(f"{number},{'ab'[number % 2]}\n" for number in range(40))
WEIGHTS = {"0000 dense/kernel (2,) float32": np.array([1, 2], np.float32)}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Place(SimpleNamespace):
    """A workspace with its MLflow, and a checkout with a model, its data and one commit."""

    workspace: Path
    checkout: Path
    client: MlflowClient

    def run(self) -> Run:
        """Returns a run of it as a pipeline leaves it, in MLflow too; made by hand, not trained."""
        config = build_config(
            {
                "name": "scales",
                "data": {"source": {"kind": "table", "path": str(self.checkout / "rows.csv"), "target": "kind"}},
                "model": {"build": "scales:build", "folder": str(self.checkout)},
                "train": {"best_metric": "val_loss"},
            }
        )
        shards = prepare(config.name, config.data, download(config.data, self.workspace), self.workspace)
        digests = {"data_digest": shards.data_digest, "code_digest": code_digest(config.model, "auto")}
        with open_run(self.workspace, config, **digests, fresh=True) as run, tracked(run) as tracker:
            finish(run)
            tracker.log_training(train_result(run))
            tracker.log_report(eval_report(run))
            run.finish()
        return run

    def changed(self, tmp_path: Path) -> tuple[Path, list[str]]:
        """Returns a copy of the checkout that may be changed, and what lets a run find it."""
        copy = tmp_path / "copy"
        shutil.copytree(self.checkout, copy)
        return copy, [f"model.folder={copy}", f"data.source.path={copy / 'rows.csv'}"]


def finish(run: Run, *, weights: dict[str, Any] = WEIGHTS) -> None:
    """Writes what a training leaves: epochs, and the best checkpoint."""
    log_epochs(run, val_accuracy=[0.5, 0.75])
    save(run.checkpoints, weights, Position(step=20))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("reproduction")
    checkout = folder / "checkout"
    checkout.mkdir()
    (checkout / "scales.py").write_text("def build(inputs, num_classes): ...\n")
    (checkout / "rows.csv").write_text(ROWS)
    (checkout / ".gitignore").write_text("rows.csv\n")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    workspace = folder / "workspace"
    workspace.mkdir()
    return Place(workspace=workspace, checkout=checkout, client=open_client(f"sqlite:///{workspace / 'mlflow.db'}"))


@pytest.fixture(scope="module")
def first(place: Place) -> Run:
    """A run of which nothing has changed."""
    return place.run()


def refusal(place: Place, run: Run, *overrides: str, allow: str = "") -> list[str]:
    """Returns the lines between the first and the last of what a reproduction is refused with."""
    with pytest.raises(RunError, match=f"run {run.id} would not be the same:") as refused:
        plan_reproduction(run.id, place.workspace, overrides=overrides, allow=allow)
    lines = str(refused.value).splitlines()
    subjects = ",".join(dict.fromkeys(line.partition(":")[0].strip() for line in lines[1:-1]))
    assert lines[-1].endswith(f"--allow {subjects}")
    return [line.strip() for line in lines[1:-1]]


def test_what_has_not_changed_is_rebuilt_from_mlflow_alone(place: Place, first: Run, tmp_path: Path) -> None:
    mlflow_run_id = first.state().mlflow_run_id
    hidden = first.directory.rename(tmp_path / "hidden")
    try:
        plan = plan_reproduction(first.id, place.workspace)
        assert plan == plan_reproduction(mlflow_run_id, place.workspace)
    finally:
        hidden.rename(first.directory)
    assert plan.differences == ()
    assert plan.recorded.provenance.commit == git(place.checkout, "rev-parse", "HEAD")
    # On as many replicas as then, whatever auto would come to here.
    two = build_config(first.config.model_dump(mode="json"), ["distribute.num_replicas=2"])
    assert plan.config == two


def test_a_source_that_has_changed_is_refused_by_its_fingerprint(place: Place, first: Run, tmp_path: Path) -> None:
    copy, overrides = place.changed(tmp_path)
    (copy / "rows.csv").write_text(ROWS + "40,a\n")
    (line,) = refusal(place, first, *overrides)
    recorded = plan_reproduction(first.id, place.workspace).recorded
    assert line.startswith(f"data: fingerprint of the source was {recorded.source_digest}, and is ")
    plan = plan_reproduction(first.id, place.workspace, overrides=overrides, allow="data")
    assert [each.subject for each in plan.differences] == ["data"]
    with pytest.raises(DataError, match="there is no"):
        plan_reproduction(first.id, place.workspace, overrides=[f"data.source.path={tmp_path}/gone/rows.csv"])


def test_another_commit_and_changes_without_one_are_refused(place: Place, first: Run, tmp_path: Path) -> None:
    copy, overrides = place.changed(tmp_path)
    head = git(copy, "rev-parse", "HEAD")
    assert first.id in {found.run.run_id for found in find_lineages(head[:9], place.workspace)}
    (copy / ".gitignore").write_text("rows.csv\n*.png\n")
    assert refusal(place, first, *overrides) == [
        f"commit: git commit was {head}, and is {head} with changes that are not committed"
    ]
    git(copy, "commit", "--quiet", "--all", "-m", "second")
    assert refusal(place, first, *overrides) == [
        f"commit: git commit was {head}, and is {git(copy, 'rev-parse', 'HEAD')}"
    ]
    (copy / "scales.py").write_text("def build(inputs, num_classes): return None\n")
    git(copy, "commit", "--quiet", "--all", "-m", "third")
    assert [line.partition(":")[0] for line in refusal(place, first, *overrides)] == ["code", "commit"]
    assert [line.partition(":")[0] for line in refusal(place, first, *overrides, allow="code")] == ["commit"]
    plan = plan_reproduction(first.id, place.workspace, overrides=overrides, allow="code, commit")
    assert [each.subject for each in plan.differences] == ["code", "commit"]


def test_a_package_of_another_release_is_refused_and_so_is_one_that_is_new_or_gone(place: Place) -> None:
    run = place.run()
    made = plan_reproduction(run.id, place.workspace).recorded.provenance
    packages = {name: version for name, version in made.packages.items() if name != "scipy"}
    then = made.model_copy(update={"packages": {**packages, "numpy": "1.0", "left-pad": "2"}})
    place.client.log_text(run.state().mlflow_run_id, then.requirements(), "requirements.txt")
    assert refusal(place, run) == [
        "packages: left-pad was 2, and is none",
        f"packages: numpy was 1.0, and is {made.packages['numpy']}",
        f"packages: scipy was none, and is {made.packages['scipy']}",
    ]
    assert len(plan_reproduction(run.id, place.workspace, allow="packages").differences) == 3


def test_another_config_is_refused_unless_it_changes_no_result(place: Place, first: Run) -> None:
    assert plan_reproduction(first.id, place.workspace, overrides=["train.keep_checkpoints=5"]).differences == ()
    (line,) = refusal(place, first, "train.seed=1")
    assert line.startswith(f"config: key of the config was {first.state().key}, and is ")
    assert (
        plan_reproduction(first.id, place.workspace, overrides=["train.seed=1"], allow="config").config.train.seed == 1
    )
    with pytest.raises(
        ConfigError, match=r"config\.yaml in MLflow: train\.sed=1: no such field; did you mean train\.se"
    ):
        plan_reproduction(first.id, place.workspace, overrides=["train.sed=1"])


def test_a_wrong_id_is_named_with_the_one_that_was_meant(place: Place, first: Run) -> None:
    with pytest.raises(RunError, match=f"no run '{first.id[:-1]}x' in sqlite.*; did you mean {first.id}; MLFLOW_TRA"):
        plan_reproduction(f"{first.id[:-1]}x", place.workspace)
    with pytest.raises(RunError, match=f"no run '{'f' * 32}' in sqlite.*; the newest are: .*{first.id}"):
        plan_reproduction("f" * 32, place.workspace)
    with pytest.raises(ConfigError, match="--allow comit: must be one or more of config,data,code,commit,python,pack"):
        plan_reproduction(first.id, place.workspace, allow="comit")
    with pytest.raises(ConfigError, match="nothing is registered yet"):
        plan_reproduction(first.id, place.workspace / "elsewhere")


def test_a_run_that_is_not_whole_in_mlflow_is_refused(place: Place) -> None:
    run = place.run()
    mlflow_run_id = run.state().mlflow_run_id
    artifacts = Path(place.client.get_run(mlflow_run_id).info.artifact_uri)
    (artifacts / "requirements.txt").unlink()
    (artifacts / "data" / "manifest.json").unlink()
    (line,) = refusal(place, run)
    assert line.startswith("packages: list of the installed packages was unknown, and is of ")
    assert plan_reproduction(run.id, place.workspace, allow="packages").recorded.source_digest is None
    (artifacts / "config.yaml").unlink()
    with pytest.raises(DataError, match=rf"run {run.id}: its config\.yaml is gone from MLflow run {mlflow_run_id}"):
        plan_reproduction(run.id, place.workspace)
    place.client.set_terminated(mlflow_run_id, "KILLED")
    with pytest.raises(RunError, match=f"{run.id} is KILLED in MLflow .*; finish it with `millstream resume {run.id}`"):
        plan_reproduction(run.id, place.workspace)


MADE = Provenance(
    host="a",
    python="3.12.1",
    platform="b",
    packages={"x": "1"},
    code_digest="c",
    pipeline_digest="p",
    commit="d",
    dirty=False,
    tags={},
)
THEN = Recorded(
    run_id="scales-1",
    mlflow_run_id="m",
    status="FINISHED",
    url="",
    workspace=Path("nowhere"),
    key="k",
    config={},
    data_digest="e",
    source_digest="f",
    provenance=MADE,
    num_replicas=2,
    lost_devices="",
    reproduces="",
    metrics={},
)
NOW = Present(key="k", data_digest="e", source_digest="f", provenance=MADE)


def now(**made: Any) -> Present:
    return NOW.model_copy(update={"provenance": MADE.model_copy(update=made)})


@pytest.mark.parametrize(
    ("then", "present", "difference"),
    [
        (THEN, NOW.model_copy(update={"key": "K"}), ("config", "key of the config", "k", "K")),
        (
            THEN,
            NOW.model_copy(update={"data_digest": "E", "source_digest": "F"}),
            ("data", "fingerprint of the source", "f", "F"),
        ),
        # The same source, of which a later release of ours would write other shards.
        (THEN, NOW.model_copy(update={"data_digest": "E"}), ("data", "digest of the shards", "e", "E")),
        (THEN, now(code_digest="C"), ("code", "sha256 of the model's source", "c", "C")),
        (THEN, now(pipeline_digest="P"), ("code", "sha256 of millstream's own source", "p", "P")),
        (THEN, now(commit="D"), ("commit", "git commit", "d", "D")),
        (THEN, now(dirty=True), ("commit", "git commit", "d", "d with changes that are not committed")),
        (THEN, now(commit=None, dirty=None), ("commit", "git commit", "d", "none")),
        # Nobody knows whether the changes of then are those of now.
        (
            THEN.model_copy(update={"provenance": MADE.model_copy(update={"dirty": True})}),
            now(dirty=True),
            ("commit", "git commit", *["d with changes that are not committed"] * 2),
        ),
        (THEN, now(python="3.12.2"), ("python", "Python", "3.12.1", "3.12.2")),
        (THEN, now(packages={"x": "2"}), ("packages", "x", "1", "2")),
        (THEN, now(host="A", platform="B"), None),  # told of both runs, and no cause to refuse
        (THEN, NOW, None),
    ],
)
def test_each_difference_has_its_word(
    then: Recorded, present: Present, difference: tuple[str, str, str, str] | None
) -> None:
    fields = ("subject", "what", "then", "now")
    expected = () if difference is None else (Difference.model_validate(dict(zip(fields, difference, strict=True))),)
    assert find_differences(then, present) == expected


def test_all_that_can_differ_has_a_word() -> None:
    other = now(code_digest="C", commit="D", python="3.13", packages={})
    found = find_differences(THEN, other.model_copy(update={"key": "K", "data_digest": "E"}))
    assert [difference.subject for difference in found] == [*SUBJECTS]


@pytest.fixture
def again(place: Place, first: Run) -> Callable[..., Reproduction]:
    """Returns what comes of a run by hand that reproduces the first, with a change."""

    def carried_out(
        *, weights: dict[str, Any] = WEIGHTS, val_loss: float = 0.25, num_replicas: int = 2, allow: bool = False
    ) -> Reproduction:
        plan = plan_reproduction(first.id, place.workspace)
        if allow:
            plan = plan.model_copy(update={"differences": (Difference(subject="data", what="x", then="1", now="2"),)})
        digests = {"data_digest": plan.recorded.data_digest, "code_digest": plan.recorded.provenance.code_digest}
        with open_run(place.workspace, plan.config, **digests, reproduces=first.id, fresh=True) as run:
            finish(run, weights=weights)
            events.append(run.events, {"val_loss": val_loss, "best_step": 20, "best_val_loss": 0.9}, step=30)
            events.append(
                run.events, {f"eval/{name}": value for name, value in eval_report(run).metrics.items()}, step=20
            )
            trained = train_result(run, num_replicas=num_replicas)
        trained = trained.model_copy(update={"best_checkpoint": path_of(run.checkpoints, 20)})
        return compare_with_first(plan, run, trained, url="")

    return carried_out


def test_the_same_metrics_and_the_same_bits_are_a_reproduction(again: Callable[..., Reproduction], first: Run) -> None:
    found = again()
    assert (found.is_exact, found.is_reproduced, found.inexact) == (True, True, ())
    assert found.reproduces == first.id
    assert found.weights is not None
    assert (found.weights.num_variables, found.weights.num_different) == (1, 0)
    assert found.figures["eval/accuracy"].difference == 0
    assert "perf/examples_per_second" not in found.figures
    assert {figure.difference for figure in found.figures.values()} == {0}


def test_a_bit_that_differs_is_none_unless_there_is_a_reason(again: Callable[..., Reproduction]) -> None:
    other = {name: value + np.float32(2**-20) for name, value in WEIGHTS.items()}
    found = again(weights=other)
    assert (found.is_exact, found.is_reproduced) == (False, False)
    assert found.weights is not None
    assert (found.weights.largest, found.weights.variable) == (2**-20, "dense/kernel")
    found = again(val_loss=0.5)
    assert (found.is_exact, found.is_reproduced) == (False, False)
    assert found.figures["val_loss"].difference == 0.25
    found = again(weights=other, num_replicas=1)
    assert found.inexact == ("it was trained on 2 replicas, and now on 1",)
    assert (found.is_exact, found.is_reproduced) == (False, True)
    assert again(weights=other, allow=True).inexact == ("something has changed, as was allowed",)


def test_weights_that_are_gone_are_named_and_the_metrics_still_compared(
    again: Callable[..., Reproduction], first: Run, tmp_path: Path
) -> None:
    hidden = first.checkpoints.rename(tmp_path / "hidden")
    try:
        found = again()
    finally:
        hidden.rename(first.checkpoints)
    assert (found.weights, found.weights_gone) == (None, str(path_of(first.checkpoints, 20)))
    assert found.is_exact


def test_a_plan_passes_through_prefect_as_json(place: Place, first: Run) -> None:
    plan = plan_reproduction(first.id, place.workspace)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
