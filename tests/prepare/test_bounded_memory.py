"""The memory of a source: however large it is, a bounded part of it is in memory."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.any_source import REPOSITORY

SIZE_MB = 300
MAPPED_MB = 155  # just under what `tasks.prepare.spool` maps
MAX_MB = 600
MAX_GROWTH_MB = 200  # over a set of 2 MB; 80 bytes an example and a few batches

STAGE = """
import re, sys
from pathlib import Path
from tasks.config import load_config
from tasks.download.download import download
from tasks.prepare.prepare import prepare
from tasks.workers import launch
config, workspace = load_config(sys.argv[1]), Path(sys.argv[2])
shards = prepare(config.name, config.data, download(config.data, workspace), workspace)
launch.shut_down()
print(sum(shards.num_examples.values()), re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def _one_row_group(folder: Path, size_mb: int) -> dict[str, Any]:
    """Writes a Parquet file as some tools do: a single row group, as large as the file."""
    values = np.random.default_rng(0).random(size_mb * 250_000, np.float32)
    tensors = pa.FixedSizeListArray.from_arrays(pa.array(values), 1000)
    table = pa.table({"x": tensors, "y": np.arange(len(tensors)) % 2})
    pq.write_table(table, folder / "a.parquet", compression="none", row_group_size=len(table))
    return {"kind": "table", "target": "y"}


def _many_row_groups(folder: Path, size_mb: int) -> dict[str, Any]:
    values = pa.array(np.random.default_rng(0).random(250_000, np.float32))
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 1000), "y": np.arange(250) % 2})
    with pq.ParquetWriter(folder / "a.parquet", table.schema, compression="none") as writer:
        for _ in range(size_mb):
            writer.write_table(table)
    return {"kind": "table", "target": "y"}


def _csv(folder: Path, size_mb: int) -> dict[str, Any]:
    with open(folder / "a.csv", "w") as file:
        file.write(f"{','.join(f'c{index}' for index in range(20))},y\n")
        file.writelines(f"{index}{',0.123456' * 19},{index % 2}\n" for index in range(size_mb * 5500))
    return {"kind": "table", "target": "y"}


def _json(folder: Path, size_mb: int) -> dict[str, Any]:
    with open(folder / "a.jsonl", "w") as file:
        for index in range(size_mb * 1600):
            file.write(json.dumps({"a": index, "b": index / 3, "t": "word " * 115, "y": index % 2}) + "\n")
    return {"kind": "table", "target": "y", "text": ["t"]}


def _images(folder: Path, size_mb: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    for index in range(size_mb * 4):
        path = folder / "ab"[index % 2] / f"{index}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (290, 290, 3), np.uint8)).save(path, compress_level=0)
    return {"kind": "image_folder"}


def _texts(folder: Path, size_mb: int) -> dict[str, Any]:
    for index in range(size_mb * 2):
        path = folder / "ab"[index % 2] / f"{index}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"word {index:<6}" * 45_000)
    return {"kind": "text_folder"}


def _words(folder: Path, size_mb: int) -> dict[str, Any]:
    """Writes more different words than are counted in memory."""
    rng = np.random.default_rng(0)
    with open(folder / "a.csv", "w") as file:
        file.write("t,y\n")
        for index in range(size_mb):
            words = np.char.mod("%08x", rng.integers(0, 2_000_000, (100, 150)))
            file.writelines(f"{'The usual ' * 860}{' '.join(row)},{index % 2}\n" for row in words)
    return {"kind": "table", "target": "y", "text": ["t"]}


def _array(folder: Path, size_mb: int) -> dict[str, Any]:
    (folder / "reader_of_tensors.py").write_text(
        "import numpy as np\n"
        f"def read():\n"
        f"    for index in range({size_mb * 4}):\n"
        "        yield {'x': np.random.default_rng(index).random((250, 250), np.float32), 'label': index % 2}\n"
    )
    return {"kind": "array", "folder": str(folder), "read": "reader_of_tensors:read"}


proven = (pytest.mark.prove, pytest.mark.timeout(600))


@pytest.mark.parametrize(
    "write",
    [
        _one_row_group,
        *(
            pytest.param(each, marks=proven)
            for each in (_many_row_groups, _csv, _json, _images, _texts, _words, _array)
        ),
    ],
    ids=lambda write: write.__name__,
)
def test_memory_does_not_grow_with_the_set(tmp_path: Path, write: Callable[[Path, int], dict[str, Any]]) -> None:
    small, large = _peak_mb(tmp_path / "small", write, 2), _peak_mb(tmp_path / "large", write, SIZE_MB)
    assert large - small < MAX_GROWTH_MB


@pytest.mark.prove
def test_a_set_that_is_mapped_while_it_is_shuffled_is_bounded_too(tmp_path: Path) -> None:
    assert _peak_mb(tmp_path / "mapped", _one_row_group, MAPPED_MB) < MAX_MB


def _peak_mb(folder: Path, write: Callable[[Path, int], dict[str, Any]], size_mb: int) -> float:
    """Returns the largest resident memory of a process that downloads and prepares so large a source."""
    data = folder / "data"
    data.mkdir(parents=True)
    source = write(data, size_mb)
    if source["kind"] != "array":
        source["path"] = str(data)
    splits = {"train": 0.4, "validation": 0.3, "test": 0.3}
    config = {"source": source, "splits": splits, "text": {} if write is _words else None}
    (folder / "any.yaml").write_text(json.dumps({"name": "any", "data": config}))
    process = subprocess.run(
        [sys.executable, "-c", STAGE, folder / "any.yaml", folder / "workspace"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    shutil.rmtree(folder)  # pytest keeps what its last runs wrote
    num_examples, peak_kb = process.stdout.split()
    assert int(num_examples) > 0
    return int(peak_kb) / 1024
