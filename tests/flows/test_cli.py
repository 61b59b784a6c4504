"""The command: light, and clear about what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DIGITS = Path(__file__).parents[2] / "conf" / "digits.yaml"
HEAVY = ("tensorflow", "keras", "mlflow", "prefect")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["config", "validate", str(DIGITS)], ["config", "show", str(DIGITS)], ["runs"]],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(arguments, tmp_path):
    code = f"""
import sys
sys.argv = ["millstream", *{arguments!r}]
from flows.cli import app
try:
    app()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "imported: []" in done.stderr


def test_every_command_has_help_with_an_example(millstream):
    stages = ("download", "prepare", "train", "evaluate", "export")
    for command in (
        "run",
        "resume",
        *stages,
        "runs",
        "compare",
        "sync",
        "doctor",
        "bench shards",
        "bench feed",
        "bench step",
        "bench parity",
        "bench scaling",
        "config show",
        "retrain",
        "config schema",
        "config validate",
    ):
        assert f"Example: millstream {command}" in millstream(*command.split(), "--help").stdout


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("feed.globl_batch_size=3", "feed.globl_batch_size=3: no such field; did you mean feed.global_batch_size?"),
        ("train.total=3 epoks", "train.total='3 epoks': must be a whole number and a unit"),
        ("distribute.kind=mirored", "distribute.kind='mirored': must be one of"),
        ("nonsense", "override 'nonsense': must be key=value"),
    ],
)
def test_a_typo_in_a_config_is_refused_before_anything_starts(millstream, override, message):
    refused = millstream("run", DIGITS, override, code=2)
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_config_that_is_not_there_is_named(millstream):
    assert "nowhere.yaml: cannot be read" in millstream("run", "nowhere.yaml", code=2).stderr


def test_a_wrong_word_is_a_usage_error(millstream):
    millstream("rnu", DIGITS, code=2)
    millstream("run", code=2)


def test_an_unknown_run_lists_those_there_are(millstream):
    unknown = millstream("resume", "digits-x", code=1)
    assert f"no run 'digits-x' in {millstream.workspace}; the newest are: " in unknown.stderr


def test_evaluating_what_was_never_prepared_says_what_to_do(millstream):
    refused = millstream("evaluate", DIGITS, "data.seed=99", code=1)
    assert "write them with `millstream prepare`" in refused.stderr


def test_prepare_verifies_and_repairs(millstream):
    arguments = ("prepare", DIGITS, "data.seed=98")
    assert "write them with `millstream prepare`" in millstream(*arguments, "--repair", code=1).stderr
    directory = Path(json.loads(millstream(*arguments, "--json").stdout)["directory"])
    assert "11 files, all as they were written" in millstream(*arguments, "--verify").stdout
    (directory / "features.json").unlink()
    (directory / "notes.txt").write_text("mine")
    found = json.loads(millstream(*arguments, "--verify", "--json", code=1).stdout)
    assert found["damages"] == {"features.json": "missing", "notes.txt": "does not belong here"}
    assert "features.json  missing" in millstream(*arguments, "--verify", code=1).stdout
    assert "2 file(s) mended" in millstream(*arguments, "--repair").stderr
    assert "all as they were written" in millstream(*arguments, "--verify").stdout


def test_show_prints_the_whole_config_with_overrides(millstream):
    shown = yaml.safe_load(millstream("config", "show", DIGITS, "train.total=3 epochs", "feed.block=128").stdout)
    assert (shown["train"]["total"], shown["feed"]["block"]) == ("3 epochs", 128)
    assert shown["distribute"]["hang_timeout_seconds"] == 300


def test_schema_describes_every_group(millstream):
    schema = json.loads(millstream("config", "schema").stdout)
    assert schema["$defs"]["TrainConfig"]["properties"]["total"]["pattern"].startswith("^")
    assert all("description" in group for group in schema["$defs"].values() if "properties" in group)
    assert all("description" in field for field in schema["$defs"]["FeedConfig"]["properties"].values())
