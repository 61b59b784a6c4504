"""A kill in the middle of an image folder: no process is left behind, and the next run gives the right bytes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.config import load_config
from tasks.files import COMPLETED
from tests.any_source import REPOSITORY, picture, prepared

NUM_IMAGES = 120

# The stage alone, as a process of its own, killed at the 50th image; it first says which workers it has.
STAGE = """
import itertools, os, signal, sys
from pathlib import Path
import psutil
from tasks.config import load_config
from tasks.download.download import download
from tasks.prepare.image_worker import ImageWorker
from tasks.prepare.prepare import prepare

whole, calls = ImageWorker.prepare, itertools.count(1)

def dying(worker, *image):
    if next(calls) == 50:
        print(*(process.pid for process in psutil.Process().children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(worker, *image)

ImageWorker.prepare = dying
config, workspace = load_config(sys.argv[1]), Path(sys.argv[2])
prepare(config.name, config.data, download(config.data, workspace), workspace)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for index in range(NUM_IMAGES):
        path = tmp_path / "data" / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(index))
    source = {"kind": "image_folder", "path": str(tmp_path / "data"), "store": "jpeg", "short_side": 16}
    tree = {"name": "any", "data": {"source": source, "num_workers": 3}}
    (tmp_path / "any.yaml").write_text(json.dumps(tree))
    return tmp_path / "any.yaml"


def test_a_killed_prepare_leaves_no_process_and_is_healed_to_the_same_bytes(config: Path, tmp_path: Path) -> None:
    killed, untouched = tmp_path / "killed", tmp_path / "untouched"
    process = subprocess.Popen(
        [sys.executable, "-c", STAGE, config, killed],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    with process:
        assert process.stdout is not None
        pids = list(map(int, process.stdout.read().split()))
        assert process.wait() == -signal.SIGKILL
    assert len(pids) == 3
    workers = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    psutil.wait_procs(workers, timeout=20)
    assert [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE] == []
    assert not list(killed.glob(f"data/**/{COMPLETED}"))

    shards = prepared(load_config(config), killed)
    assert not shards.reused
    assert sum(shards.num_examples.values()) == NUM_IMAGES
    expected = prepared(load_config(config, ["data.num_workers=1"]), untouched)
    assert {file.name: file.read_bytes() for file in shards.directory.iterdir()} == {
        file.name: file.read_bytes() for file in expected.directory.iterdir()
    }
    assert [entry.name for entry in shards.directory.parent.iterdir()] == ["1.0.0"]
