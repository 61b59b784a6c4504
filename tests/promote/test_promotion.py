"""Promotion: one champion, served under ever higher numbers; back in one command; finished after a crash."""

import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mlflow import MlflowClient

from tasks.errors import ConfigError, DataError, RunError
from tasks.export.manifest import digest_model
from tasks.files import lock, verify
from tasks.promote.models import list_models
from tasks.promote.promotion import REPLACED_TAG, SERVING_TAG, promote, rollback
from tasks.promote.record import MAX_REASON
from tasks.promote.registered import versions_by_alias
from tasks.promote.serving_directory import JOURNAL, history, numbers, serving_directory
from tests.promote.conftest import Registered

ROOT = Path(__file__).parents[2]


def test_the_champion_is_what_is_served_and_the_one_before_it_comes_back_in_one_command(
    place: tuple[Path, MlflowClient], every_kind: Registered, workers: ModuleType
) -> None:
    workspace, client = place
    changes = [
        promote("every_kind/1", workspace, reason="the first"),
        promote("every_kind/2", workspace, reason="better"),
        rollback("every_kind", workspace, reason="it was not"),
        promote("every_kind", workspace, reason="the newest"),
    ]
    assert [(each.kind, each.version, each.replaced, each.number) for each in changes] == [
        ("promote", 1, None, 1),
        ("promote", 2, 1, 2),
        ("rollback", 1, 2, 3),
        ("promote", 3, 1, 4),
    ]
    assert versions_by_alias(client, "every_kind") == {"champion": 3, "previous": 1}
    directory = serving_directory(workspace, "every_kind")
    assert history(directory) == changes
    assert {path.name for path in directory.iterdir() if path.is_dir()} == {"3", "4"}
    for number in numbers(directory):
        verify(directory / str(number))
        assert digest_model(directory / str(number)) == every_kind.model.digest
    (directory / "5.incomplete").mkdir()
    found = workers.call(
        "serving_functions:load_highest",
        {"directory": str(directory)},
        log=workspace / "log",
        import_path=[str(Path(__file__).parent)],
    )
    assert found["number"] == 4
    assert found["signatures"]["serving_default"] == [
        sorted(every_kind.exported.inputs),
        sorted(every_kind.exported.outputs),
    ]
    assert found["signatures"].keys() == set(every_kind.exported.signatures)
    tags = client.get_model_version("every_kind", "3").tags
    assert tags[SERVING_TAG] == f"4 (promote): {changes[3].at}, {changes[3].by}, the newest"
    assert "by version 1 (rollback)" in client.get_model_version("every_kind", "2").tags[REPLACED_TAG]


def test_a_challenger_that_wins_is_one_no_more_and_the_models_are_told(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    client.set_registered_model_alias("every_kind", "challenger", "2")
    promote("every_kind@challenger", workspace, reason="it won")
    newest, second, first = list_models("every_kind", workspace)
    assert [each.aliases for each in (newest, second, first)] == [(), ("champion",), ()]
    assert second.serving is not None
    assert second.serving.endswith("it won")
    assert first.figures.keys() == {"test.accuracy"}
    assert first.run_id == second.run_id
    assert first.data_digest is not None


def test_what_cannot_be_is_refused_and_changes_nothing(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    with pytest.raises(ConfigError, match=r"every_kind@previous: sqlite.+ has no such model; it has every_kind/3"):
        rollback("every_kind", workspace, reason="")
    with pytest.raises(ConfigError, match="must be NAME, NAME@alias or NAME/version"):
        promote("../every_kind", workspace, reason="")
    with pytest.raises(ConfigError, match=r"no_such: .+ has no such model; it has every_kind"):
        promote("no_such", workspace, reason="")
    assert not serving_directory(workspace, "no_such").exists()
    promote("every_kind/1", workspace, reason="")
    client.set_registered_model_alias("every_kind", "previous", "1")
    with pytest.raises(ConfigError, match="version 1 is @previous and the champion, so that there is none to"):
        rollback("every_kind", workspace, reason="")
    client.delete_registered_model_alias("every_kind", "previous")
    with pytest.raises(ConfigError, match="every_kind/1: is the champion already, and what is served"):
        promote("every_kind/1", workspace, reason="")
    client.set_model_version_tag("every_kind", "2", "millstream.digest", "0" * 64)
    with pytest.raises(DataError, match="are not those that were registered"):
        promote("every_kind/2", workspace, reason="")
    with pytest.raises(RunError, match="the champion is version 1 by now, where it was judged against version 2; give"):
        promote("every_kind/3", workspace, reason="", judged_against=2)
    with (
        lock(serving_directory(workspace, "every_kind") / ".lock"),
        pytest.raises(RunError, match="another command is changing what is served"),
    ):
        promote("every_kind/3", workspace, reason="")
    assert versions_by_alias(client, "every_kind") == {"champion": 1}
    assert {path.name for path in serving_directory(workspace, "every_kind").iterdir()} == {
        "1",
        ".lock",
        ".promotions.jsonl",
    }


def test_an_interrupted_promotion_that_is_given_again_is_finished(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    directory = serving_directory(workspace, "every_kind")
    first = promote("every_kind/1", workspace, reason="")
    begun = first.model_copy(update={"version": 2, "replaced": 1, "number": 2, "reason": "better"})
    begun.write(directory / JOURNAL)
    assert promote("every_kind/2", workspace, reason="once more") == begun
    assert history(directory) == [first, begun]
    assert versions_by_alias(client, "every_kind") == {"champion": 2, "previous": 1}


def test_a_rollback_that_was_interrupted_and_is_given_again_goes_back_once(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    directory = serving_directory(workspace, "every_kind")
    promote("every_kind/1", workspace, reason="")
    second = promote("every_kind/2", workspace, reason="")
    begun = second.model_copy(update={"kind": "rollback", "version": 1, "replaced": 2, "number": 3})
    begun.write(directory / JOURNAL)
    assert rollback("every_kind", workspace, reason="once more") == begun
    assert versions_by_alias(client, "every_kind") == {"champion": 1, "previous": 2}
    assert len(history(directory)) == 3


def test_what_cannot_be_finished_is_said_with_the_file_that_asks_for_it(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    directory = serving_directory(workspace, "every_kind")
    first = promote("every_kind/1", workspace, reason="")
    begun = first.model_copy(update={"version": 2, "replaced": 1, "number": 2, "digest": "0" * 64})
    begun.write(directory / JOURNAL)
    with pytest.raises(DataError, match=r"\.promotion\.json: the change to every_kind/2.+ is another, by its sha256"):
        promote("every_kind/3", workspace, reason="")
    client.delete_model_version("every_kind", "2")
    with pytest.raises(DataError, match=r"cannot be finished \(every_kind/2: .+ has no such model.+ remove that file"):
        promote("every_kind/3", workspace, reason="")
    (directory / JOURNAL).unlink()
    assert promote("every_kind/3", workspace, reason="").replaced == 1


def test_a_disk_that_takes_nothing_is_named_and_not_mlflow(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    directory = serving_directory(workspace, "every_kind")
    promote("every_kind/1", workspace, reason="")
    (directory / "2.incomplete").touch()  # in the way, whoever writes
    with pytest.raises(DataError, match=r"every_kind: cannot be written .+File exists.+ give the same command again"):
        promote("every_kind/2", workspace, reason="")
    (directory / "2.incomplete").unlink()
    assert promote("every_kind/2", workspace, reason="").number == 2
    assert versions_by_alias(client, "every_kind") == {"champion": 2, "previous": 1}


def test_a_reason_of_any_length_is_kept_as_far_as_the_registry_takes_it(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    promote("every_kind/1", workspace, reason="long " * 2000)
    assert client.get_model_version("every_kind", "1").tags[SERVING_TAG].endswith("long " * (MAX_REASON // 5))


# Killed before each step in turn, and behind the last of them.
KILL = """
import os, signal, sys
from pathlib import Path
from mlflow import MlflowClient
from tasks.promote import promotion
workspace, place, name = Path(sys.argv[1]), *sys.argv[2:]
def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
setattr({"registry": MlflowClient, "promotion": promotion}[place], name, kill)
promotion.promote("every_kind/2", workspace, reason="better")
"""


@pytest.mark.prove
@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("registry", "set_registered_model_alias"),
        ("promotion", "publish"),
        ("promotion", "write_atomic"),
        ("promotion", "retire"),
    ],
)
def test_what_a_kill_leaves_half_done_the_next_command_finishes(
    place: tuple[Path, MlflowClient], where: str, name: str
) -> None:
    workspace, client = place
    promote("every_kind/1", workspace, reason="the first")
    command = [sys.executable, "-c", KILL, str(workspace), where, name]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    back = rollback("every_kind", workspace, reason="no")
    directory = serving_directory(workspace, "every_kind")
    assert [(each.kind, each.version, each.number) for each in history(directory)] == [
        ("promote", 1, 1),
        ("promote", 2, 2),
        ("rollback", 1, 3),
    ]
    assert history(directory)[-1] == back
    assert versions_by_alias(client, "every_kind") == {"champion": 1, "previous": 2}
    assert not (directory / JOURNAL).exists()
    assert not list(directory.glob(".fetched-*"))
