"""StepCase: what the sides of the step bench are given, as a file that each of their processes reads."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tasks.bench.arrays import NUM_CLASSES, Images, write_images, write_shards
from tasks.config import Config, DataConfig, build_config
from tasks.files import Record
from tasks.prepare.manifest import MANIFEST, ShardManifest, Shards

CHECKPOINT_STEPS = 100  # between two checkpoints
BATCH_SIZE = 64
NUM_EXAMPLES = 10 * BATCH_SIZE


class Model(NamedTuple):
    """A model of the bench, and how long its turns are."""

    build: str
    size_bytes: int
    """Of an image."""
    short: int
    """Steps in a turn that is mostly the fixed cost of a call."""
    long: int
    """Steps in one that is not."""


MODELS = {
    "mlp": Model("tasks.bench.step_sides:mlp", size_bytes=64, short=8, long=520),
    "cnn": Model("tasks.bench.step_sides:cnn", size_bytes=3072, short=2, long=34),
}


class StepCase(Record):
    """A model on a number of replicas, shards to feed it from, and how many steps a turn has."""

    shards: Path
    config: Config
    num_steps: int

    def manifest(self) -> ShardManifest:
        """Returns the manifest of the shards."""
        return ShardManifest.read(self.shards / MANIFEST)

    def as_shards(self) -> Shards:
        """Returns the shards as a training takes them."""
        return Shards(directory=self.shards, data_digest="", num_shards=1, num_examples={}, num_bad=0, reused=True)


def step_cases(directory: Path, model: str, num_replicas: int) -> tuple[Path, Path]:
    """Returns the case files of a short and a long turn of one of MODELS, in a new directory."""
    build, size_bytes, *turns = MODELS[model]
    file = write_images(directory, NUM_EXAMPLES, size_bytes)
    images = np.load(file)
    write_shards(directory / "shards", Images(images, np.arange(len(images)) % NUM_CLASSES), DataConfig())
    config = build_config(
        {
            "name": model,
            "feed": {"global_batch_size": BATCH_SIZE},
            "model": {"build": build},
            "train": {"optimizer": {"name": "sgd", "args": {"momentum": 0.9}, "schedule": {"kind": "constant"}}},
            "distribute": {"kind": "mirrored", "num_replicas": num_replicas},
        }
    )
    short, long = (directory / f"{num_steps}.json" for num_steps in turns)
    for case, num_steps in zip((short, long), turns, strict=True):
        StepCase(shards=directory / "shards", config=config, num_steps=num_steps).write(case)
    return short, long
