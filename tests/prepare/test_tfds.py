"""The TFDS metadata: tfds.load reads the shards as it reads its own."""

import gzip
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tasks.config import DataConfig
from tasks.download.digits import find_digits
from tasks.download.download import download
from tasks.prepare.prepare import prepare

# A process of its own: reading a data set touches the devices, which other tests want to set up.
READER = """
import json, sys
import numpy as np
import tensorflow_datasets as tfds

def rows(split):
    one_by_one = tfds.ReadConfig(interleave_cycle_length=1)
    dataset = tfds.load("digits", data_dir=sys.argv[1], split=split, read_config=one_by_one)
    return [int(example["id"]) for example in dataset.as_numpy_iterator()]

splits, info = tfds.load("digits", data_dir=sys.argv[1], with_info=True)
examples = {name: list(split.as_numpy_iterator()) for name, split in splits.items()}
print(json.dumps({
    "names": info.features["label"].names,
    "features": {
        name: [list(feature.shape), np.dtype(feature.np_dtype).name] for name, feature in info.features.items()
    },
    "counts": {name: split.num_examples for name, split in info.splits.items()},
    "num_bytes": {name: split.num_bytes for name, split in info.splits.items()},
    "examples": [
        [int(example["id"]), int(example["label"]), example["image"].ravel().tolist()]
        for part in examples.values() for example in part
    ],
    "head": rows("train[:10%]"),
    "tail": rows("train[10%:]"),
    "train": rows("train"),
}))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What TFDS finds in the shards of the digits."""
    workspace = tmp_path_factory.mktemp("workspace")
    config = DataConfig.model_validate({"shard_size": "55 KB"})
    shards = prepare("digits", config, download(config, workspace), workspace)
    process = subprocess.run(
        [sys.executable, "-c", READER, str(shards.directory.parents[1])],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    found: dict[str, Any] = json.loads(process.stdout)
    splits = shards.manifest().splits
    found["expected_bytes"] = {name: sum(shard.size_bytes for shard in split.shards) for name, split in splits.items()}
    return found


def test_tfds_reads_every_example_exactly(read: dict[str, Any]) -> None:
    lines = gzip.decompress(find_digits().read_bytes()).decode().split()
    table = [[int(value) for value in line.split(",")] for line in lines]
    expected = [[row, values[-1], values[:-1]] for row, values in enumerate(table)]
    assert sorted(read["examples"]) == expected


def test_tfds_knows_the_features_splits_and_label_names(read: dict[str, Any]) -> None:
    assert read["names"] == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert read["features"] == {"image": [[8, 8, 1], "uint8"], "label": [[], "int64"], "id": [[], "int64"]}
    assert read["counts"] == {"train": 1437, "validation": 180, "test": 180}
    assert read["num_bytes"] == read["expected_bytes"]


def test_tfds_slices_follow_the_order_of_the_shards(read: dict[str, Any]) -> None:
    assert len(read["head"]) == 144
    assert read["head"] + read["tail"] == read["train"]
