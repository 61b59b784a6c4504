"""Clean: what goes, and above all what stays."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tasks.download.download import download
from tasks.errors import ConfigError
from tasks.files import COMPLETED, digest_json, is_whole
from tasks.host.clean import Rules, age, carry_out, plan
from tasks.prepare.prepare import prepare
from tasks.runs import list_runs, open_run
from tasks.train.stage import RESULT
from tests.track.finished_runs import train_result

NONE, ALL = Rules(), Rules(keep_runs=0)
FAR = datetime.now(UTC) - timedelta(days=400)


class Place:
    """A workspace with shards of the digits, real runs that were not trained, and the figures of a training."""

    def __init__(self, workspace: Path, config, data_digest: str) -> None:
        self.workspace, self.config, self.data_digest = workspace, config, data_digest
        self.uri = f"sqlite:///{workspace}/mlflow.db"

    def prepare(self, seed: int) -> str:
        config = self.config.data.model_copy(update={"seed": seed})
        return prepare("digits", config, download(config, self.workspace), self.workspace).data_digest

    def run(self, *, data_digest: str | None = None, finished: bool = True, model: bool = True) -> str:
        """Returns the id of a run with two checkpoints, the first of them the best, and maybe a model."""
        digest = data_digest or self.data_digest
        with open_run(self.workspace, self.config, data_digest=digest, code_digest="", fresh=True) as run:
            best, last = (self.whole(run.checkpoints / step) for step in ("00000023", "00000046"))
            if finished:
                places = {"best_checkpoint": best, "last_checkpoint": last}
                train_result(run).model_copy(update=places).write(run.directory / RESULT)
                run.finish()
            if model:
                self.whole(self.workspace / "models" / "digits" / run.id)
            return run.id

    def whole(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        (directory / "content").write_bytes(bytes(1000))
        (directory / COMPLETED).write_text("{}")
        return directory

    def plan(self, rules: Rules = NONE) -> dict[str, str]:
        """Returns what would go: {path in the workspace: kind}."""
        return {str(each.path.relative_to(self.workspace)): each.kind for each in plan(self.workspace, rules)}

    def register(self, run_id: str, *aliases: str) -> None:
        import mlflow

        client = mlflow.MlflowClient(self.uri)
        if not client.search_registered_models():
            client.create_registered_model("digits")
        version = client.create_model_version("digits", "file:///x", tags={"millstream.run_id": run_id}).version
        for alias in aliases:
            client.set_registered_model_alias("digits", alias, version)


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """An MLflow database, made once because that takes seconds."""
    from tasks.track.client import open_client

    database = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    open_client(f"sqlite:///{database}")
    return database


@pytest.fixture
def place(tmp_path, digits, registry) -> Place:
    workspace = tmp_path / "workspace"
    data = Path("data", digits.shards.data_digest)
    for part in (data, "raw"):
        shutil.copytree(digits.workspace / part, workspace / part)
    shutil.copyfile(registry, workspace / "mlflow.db")
    return Place(workspace, digits.config, digits.shards.data_digest)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process holds a lock."""
    code = "import sys; from pathlib import Path; from tasks.files import lock\n"
    code += "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate("")


def test_without_rules_only_what_nothing_needs_goes(place):
    unused, other = place.prepare(1), place.prepare(2)
    finished, interrupted = place.run(), place.run(data_digest=other, finished=False)
    planned = place.plan()
    assert planned == {f"data/{unused}": "shards", f"runs/{finished}/checkpoints/00000046": "checkpoint"}

    removed = carry_out(place.workspace, Rules(), plan(place.workspace, NONE))
    assert {str(each.path.relative_to(place.workspace)) for each in removed} == set(planned)
    assert place.plan() == {}
    assert not (place.workspace / "data" / unused).exists()
    assert is_whole(place.workspace / "data" / place.data_digest / "digits" / "1.0.0")
    checkpoints = place.workspace / "runs" / finished / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["00000023"]
    assert len(list((place.workspace / "runs" / interrupted / "checkpoints").iterdir())) == 2


def test_what_a_killed_process_left_goes_and_what_one_is_writing_stays(place):
    run = place.run(finished=False)
    digest = place.data_digest
    left = [
        f"data/{digest}/digits/1.0.0.scan",
        f"data/{digest}/digits/1.0.0.incomplete",
        "raw/0123.incomplete",
        "raw/.fetching/4567",
        f"runs/{run}/checkpoints/00000069.incomplete",
        f"runs/{run}/report.incomplete",
        f"models/digits/{run}.incomplete",
        "runs/digits-20260101T000000Z-0123456789ab",
    ]
    for each in left:
        (place.workspace / each / "files").mkdir(parents=True)
        (place.workspace / each / "files" / "x.part").write_bytes(bytes(10))
    assert place.plan() == dict.fromkeys(left, "leftover")
    with (
        held(place.workspace / "data" / f".{digest}.lock"),
        held(place.workspace / "raw" / ".0123.lock"),
        held(place.workspace / "raw" / ".4567.lock"),
        held(place.workspace / "runs" / run / "worker.lock"),
    ):
        assert place.plan() == {left[-1]: "leftover"}


def test_shards_that_an_interrupted_run_has_begun_stay_to_be_gone_on_with(place):
    place.run(data_digest="ffff", finished=False)
    begun = place.workspace / "data" / "ffff" / "digits"
    for each in ("1.0.0.scan", "1.0.0.incomplete"):
        (begun / each).mkdir(parents=True)
    assert [path for path in place.plan() if "ffff" in path] == []
    assert not any(path.startswith("raw/") for path in place.plan())  # nobody can say which of it that run needs


def test_raw_data_goes_with_the_last_shards_made_from_it(place):
    [raw] = [path.name for path in (place.workspace / "raw").iterdir() if path.is_dir()]
    other = place.whole(place.workspace / "raw" / "abcd")
    place.run()
    assert place.plan().get(f"raw/{raw}") is None
    assert place.plan()["raw/abcd"] == "raw"
    # What was fetched from a URL lies under another name than the digest that its shards know.
    receipts = {"optdigits.csv": {"size_bytes": 1, "sha256": "x"}}
    (other / COMPLETED).write_text(json.dumps(receipts))
    manifest = next(place.workspace.glob(f"data/{place.data_digest}/*/*/manifest.json"))
    manifest.write_text(manifest.read_text().replace(raw, digest_json({"optdigits.csv": "x"})))
    assert place.plan().get("raw/abcd") is None
    assert place.plan()[f"raw/{raw}"] == "raw"


def test_rules_keep_the_newest_runs_of_each_name_and_what_is_young(place):
    first, second, third = place.run(model=False), place.run(model=False), place.run(model=False)
    interrupted = place.run(finished=False)
    runs = {f"runs/{first}": "run", f"runs/{second}": "run"}

    def of_runs(rules: Rules) -> dict[str, str]:
        return {path: kind for path, kind in place.plan(rules).items() if kind == "run"}

    assert of_runs(Rules(keep_runs=1)) == runs
    assert of_runs(Rules(keep_runs=3)) == {}
    assert of_runs(Rules(older_than=timedelta(0))) == runs | {f"runs/{third}": "run"}
    assert place.plan(Rules(keep_runs=0, older_than=timedelta(hours=1))) == {}
    state = place.workspace / "runs" / first / "state.json"
    tree = json.loads(state.read_text()) | {"created": FAR.isoformat()}
    state.write_text(json.dumps(tree))
    assert of_runs(Rules(older_than=timedelta(days=30))) == {f"runs/{first}": "run"}
    carry_out(place.workspace, ALL, plan(place.workspace, ALL))
    assert [state.id for state in list_runs(place.workspace)] == [interrupted]


def test_runs_that_are_being_carried_out_stay_whatever_the_rules(place):
    run = place.run()
    with held(place.workspace / "runs" / run / "lock"):
        assert place.plan(ALL) == {}
    assert place.plan(ALL)[f"runs/{run}"] == "run"


def test_model_stays_for_as_long_as_a_version_and_the_whole_run_for_as_long_as_an_alias(place):
    champion, registered, plain = place.run(), place.run(), place.run()
    place.register(champion, "champion")
    place.register(registered)
    gone = {f"runs/{registered}": "run", f"runs/{plain}": "run", f"models/digits/{plain}": "model"}
    assert place.plan(ALL) == gone | {f"runs/{champion}/checkpoints/00000046": "checkpoint"}
    carry_out(place.workspace, ALL, plan(place.workspace, ALL))
    assert sorted(path.name for path in (place.workspace / "models" / "digits").iterdir()) == [champion, registered]
    assert is_whole(place.workspace / "data" / place.data_digest / "digits" / "1.0.0")
    assert place.plan(ALL) == {}

    import mlflow

    mlflow.MlflowClient(place.uri).delete_registered_model("digits")
    assert {f"models/digits/{champion}", f"models/digits/{registered}", f"runs/{champion}"} < set(place.plan(ALL))


def test_no_model_goes_while_the_registry_does_not_answer(place, caplog):
    with_model, without = place.run(), place.run(model=False)
    (place.workspace / "mlflow.db").unlink()
    assert place.plan(ALL) == {
        f"runs/{without}": "run",
        f"runs/{with_model}/checkpoints/00000046": "checkpoint",
    }
    assert "mlflow.db: is not there; all models stay, and the runs that have one" in caplog.text
    assert not (place.workspace / "mlflow.db").exists()


def test_no_model_goes_while_a_server_refuses(place, caplog, monkeypatch):
    place.run()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert "model" not in place.plan(ALL).values()
    assert "http://127.0.0.1:9 does not answer" in caplog.text


def test_what_was_begun_after_the_plan_was_shown_stays(place):
    unused, run = place.prepare(1), place.run(model=False)
    shown = plan(place.workspace, ALL)
    assert {each.path.name for each in shown} >= {unused, run}
    later = place.run(data_digest=unused, finished=False)
    with held(place.workspace / "runs" / run / "lock"):
        removed = carry_out(place.workspace, ALL, shown)
    assert {each.path.name for each in removed} == set()
    assert {state.id for state in list_runs(place.workspace)} == {run, later}


def test_lock_taken_at_the_last_moment_is_respected(place, caplog):
    from tasks.host import clean

    digest = place.prepare(1)
    [removal] = [each for each in plan(place.workspace, NONE) if each.path.name == digest]
    with held(place.workspace / "data" / f".{digest}.lock"):
        assert not clean._remove(removal)
    assert "a process has begun to use it; it stays" in caplog.text
    assert is_whole(removal.path / "digits" / "1.0.0")


def test_nothing_half_removed_is_trusted(place, monkeypatch):
    """The file system refuses in the middle: by then every marker is gone, and the next command finishes the work."""
    from tasks.host import clean

    run, digest = place.run(model=False), place.prepare(1)

    def refuse(path: Path) -> None:
        raise OSError(f"cannot remove {path}")

    for each in plan(place.workspace, ALL):
        with monkeypatch.context() as patched:
            patched.setattr(clean.shutil, "rmtree", refuse)
            with pytest.raises(OSError, match="cannot remove"):
                clean._remove(each)
        assert list(each.path.rglob(COMPLETED)) == []
    assert list_runs(place.workspace) == []
    later = place.plan()
    assert (later[f"runs/{run}"], later[f"data/{digest}"]) == ("leftover", "shards")
    carry_out(place.workspace, Rules(), plan(place.workspace, NONE))
    assert place.plan() == {}


def test_links_are_cut_and_never_followed(place, tmp_path):
    kept = place.whole(tmp_path / "elsewhere")
    link = place.workspace / "raw" / "abcd"
    link.symlink_to(kept)
    place.run()
    assert place.plan()["raw/abcd"] == "raw"
    carry_out(place.workspace, Rules(), plan(place.workspace, NONE))
    assert not link.is_symlink()
    assert (kept / COMPLETED).exists()


def test_workspace_that_is_not_there_is_not_made(tmp_path):
    assert plan(tmp_path / "workspace", ALL) == []
    assert list(tmp_path.iterdir()) == []


def test_plan_of_an_age_looks_at_the_newest_file(place):
    digest = place.prepare(1)
    month = Rules(older_than=timedelta(days=30))
    for path in (place.workspace / "data" / digest).rglob("*"):
        os.utime(path, (FAR.timestamp(), FAR.timestamp()))
    os.utime(place.workspace / "data" / digest, (FAR.timestamp(), FAR.timestamp()))
    assert f"data/{digest}" in place.plan(month)
    next((place.workspace / "data" / digest).rglob("*.tfrecord*")).touch()
    assert place.plan(month) == {}


@pytest.mark.parametrize("text", ["30", "30 months", "-1 days", "1.5 hours", "days"])
def test_age_without_a_known_unit_is_refused(text):
    assert age("2 weeks") == timedelta(days=14)
    with pytest.raises(ConfigError, match="must be a whole number and one of minutes, hours, days, weeks"):
        age(text)


def test_a_plan_is_sorted_and_says_sizes_and_reasons(place):
    place.whole(place.workspace / "raw" / "abcd")
    place.run()
    raw, checkpoint = plan(place.workspace, NONE)
    assert raw.size_bytes == 1002 + raw.path.stat().st_size
    assert raw.reason == "no shards that stay were made from it"
    assert checkpoint.reason == "not the best of a finished run"


def test_a_cache_stays_as_long_as_an_unfinished_run_may_read_it(place):
    caches = place.workspace / "data" / place.data_digest / "digits" / "cache"
    place.whole(caches / "0123")
    (caches / "4567.incomplete").mkdir()
    going_on = place.run(finished=False, model=False)
    assert [path for path in place.plan() if "cache" in path] == []
    shutil.rmtree(place.workspace / "runs" / going_on)
    place.run()
    relative = caches.relative_to(place.workspace)
    found = {path: kind for path, kind in place.plan().items() if "cache" in path}
    assert found == {f"{relative}/0123": "cache", f"{relative}/4567.incomplete": "cache"}
    with held(caches / ".4567.lock"):
        carry_out(place.workspace, NONE, plan(place.workspace, NONE))
    assert [path.name for path in caches.iterdir() if path.is_dir()] == ["4567.incomplete"]
    assert is_whole(caches.parent / "1.0.0")
