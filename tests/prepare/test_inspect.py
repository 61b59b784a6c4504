"""The inspection of a source: what prepare would make of it, and not a byte written beside the download."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.config import Config, build_config
from tasks.download.download import download
from tasks.errors import MillstreamError
from tasks.prepare.inspect import MAX_SHOWN, NUM_FIRST, inspect_source
from tasks.prepare.inspection import Inspection
from tasks.prepare.manifest import QUARANTINE, BadExample
from tasks.prepare.tally import NUM_SHOWN, describe_bad
from tests.any_source import SOURCES, prepared

pytestmark = pytest.mark.usefixtures("workers")

MILLSTREAM = Path(sys.executable).with_name("millstream")


def _inspected(config: Config, workspace: Path) -> Inspection:
    return inspect_source(config.data, download(config.data, workspace))


@pytest.mark.parametrize("name", SOURCES)
def test_inspecting_tells_what_prepare_then_does_and_writes_nothing(tmp_path: Path, name: str) -> None:
    folder, workspace = tmp_path / "data", tmp_path / "workspace"
    folder.mkdir()
    SOURCES[name].write(folder)
    config = SOURCES[name].config(folder)
    found = _inspected(config, workspace)
    assert not (workspace / "data").exists()
    shards = prepared(config, workspace)
    manifest = shards.manifest()
    lines = (shards.directory / QUARANTINE).read_text().splitlines()
    bad = [describe_bad(BadExample.model_validate_json(line)) for line in lines]
    assert (found.problem, found.num_bad, list(found.bad)) == (None, len(bad), bad)
    assert found.num_examples == len(SOURCES[name].examples)
    assert found.splits == shards.num_examples
    assert found.features == {
        name: manifest.features[name] for name in manifest.features if name not in ("label", "id")
    }
    assert found.notes == manifest.notes
    assert [each.name for each in found.classes] == list(manifest.label_map)
    for label, each in enumerate(found.classes):
        assert each.splits == {split: told.class_counts[label] for split, told in manifest.splits.items()}
        assert each.num_examples == sum(each.splits.values())
        assert each.fraction == each.num_examples / found.num_examples
    assert len(found.first) == NUM_FIRST
    for example in found.first:
        assert example.label == SOURCES[name].examples[example.key][0]
        assert set(example.values) == set(found.features)
        assert all(len(value) <= MAX_SHOWN for value in example.values.values())


def test_first_examples_sizes_and_statistics_are_those_of_the_values(tmp_path: Path) -> None:
    rows = [(number, "süß" * number, number % 2) for number in range(1, 41)]
    (tmp_path / "a.csv").write_text("n,t,y\n" + "".join(f"{n},{t},{y}\n" for n, t, y in rows))
    source = {"kind": "table", "path": str(tmp_path / "a.csv"), "target": "y", "text": ["t"]}
    found = _inspected(build_config({"name": "a", "data": {"source": source}}), tmp_path)
    assert found.first[1].model_dump() == {"key": "a.csv:2", "label": "0", "values": {"n": "2", "t": "süßsüß"}}
    sizes = [8 + len(text.encode()) for _, text, _ in rows]
    assert (found.example_bytes_min, found.example_bytes_max) == (min(sizes), max(sizes))
    assert found.example_bytes_mean == np.mean(sizes)
    number = found.statistics["n"]
    assert (number.min, number.max, number.mean) == (1, 40, 20.5)  # over all examples


BAD_ROWS = "n,c,y\n" + "".join(f"{number if number % 4 else 'x'},a,{number % 2}\n" for number in range(48))


def _table(folder: Path, text: str, **data: Any) -> Config:
    (folder / "a.csv").write_text(text)
    source = {"kind": "table", "path": str(folder / "a.csv"), "target": "y", "types": {"n": "int64"}}
    return build_config({"name": "a", "data": {"source": source} | data})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "data.max_bad_fraction=0: 12 of 48 examples cannot be used"),
        ({"max_bad_fraction": 0.3, "num_shards": 40}, "data.num_shards=40: the training split has only 29 examples"),
        (
            {"max_bad_fraction": 0.3, "splits": {"kind": "group", "column": "c"}},
            "data.splits: only 1 group(s) (a) for 3 splits",
        ),
    ],
)
def test_whatever_prepare_would_refuse_is_a_problem_and_the_rest_is_shown(
    tmp_path: Path, data: dict[str, Any], problem: str
) -> None:
    config = _table(tmp_path, BAD_ROWS, **data)
    found = _inspected(config, tmp_path / "workspace")
    assert found.problem is not None
    assert found.problem.startswith(problem)
    assert "\n" not in found.problem
    assert (found.num_examples, found.num_bad, len(found.bad)) == (36, 12, NUM_SHOWN)
    assert found.bad[1] == "a.csv, row 5, column n is 'x', not a whole number"
    assert [each.num_examples for each in found.classes] == [12, 24]
    with pytest.raises(MillstreamError) as refused:
        prepared(config, tmp_path / "workspace")
    assert str(refused.value).startswith(problem)


def test_a_source_without_a_good_example_is_shown_too(tmp_path: Path) -> None:
    found = _inspected(_table(tmp_path, "n,y\nx,0\ny,1\n"), tmp_path / "workspace")
    assert (found.num_examples, found.num_bad, found.splits, found.first) == (0, 2, {}, ())
    assert found.problem is not None
    assert found.problem.startswith("data.max_bad_fraction=0: 2 of 2 examples cannot be used")


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def run(config: Config, *arguments: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "a.yaml").write_text(json.dumps(config.model_dump(mode="json")))
        return subprocess.run(
            [MILLSTREAM, "inspect", tmp_path / "a.yaml", *arguments],
            env=os.environ | {"MILLSTREAM_WORKSPACE": str(tmp_path / "workspace")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_command_prints_it_and_fails_where_prepare_would(
    tmp_path: Path, command: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    config = _table(tmp_path, BAD_ROWS)
    refused = command(config)
    assert refused.returncode == 1
    assert "examples       36, and 12 bad ones" in refused.stdout
    assert "bad: a.csv, row 5, column n is 'x', not a whole number" in refused.stderr
    assert "prepare would refuse it: data.max_bad_fraction=0: 12 of 48 examples" in refused.stderr
    good = command(config, "data.max_bad_fraction=0.3", "--json")
    assert good.returncode == 0
    expected = _inspected(build_config(config.model_dump(mode="json"), ["data.max_bad_fraction=0.3"]), tmp_path)
    assert Inspection.model_validate_json(good.stdout) == expected
    assert not (tmp_path / "workspace" / "data").exists()


def test_texts_of_the_data_are_printed_as_they_are_and_on_one_line(
    tmp_path: Path, command: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    rows = "".join(f'{number},"[/b]\n\x1b[2J:x:",[red]{number % 2}\n' for number in range(30))
    printed = command(_table(tmp_path, "n,c,y\n" + rows))
    assert printed.returncode == 0, printed.stderr
    assert r"a.csv:1: [red]0: n=0, c=[/b]\n\x1b[2J:x:" in printed.stdout.splitlines()
    assert any(line.split()[:2] == ["[red]1", "15"] for line in printed.stdout.splitlines())
    assert "\x1b" not in printed.stdout
