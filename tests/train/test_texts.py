"""What holds of images holds of texts: any number of replicas and workers ends with the same weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.config import load_config
from tasks.download.download import download
from tasks.prepare.prepare import prepare

CONFIG = Path(__file__).parents[2] / "conf" / "language_id.yaml"
# 300 examples a batch and 16 full batches an epoch, so that the 30 steps hold a short one, and a first epoch's end.
EXACT = (
    "train.precision=float64",
    "train.total=30 steps",
    "train.optimizer.schedule.kind=constant",
    "feed.global_batch_size=300",
    "model.build=tasks.models.transformer:build",
    "model.args={width: 16, depth: 1, heads: 2, dropout: 0.2}",
)
SGD = ("train.optimizer={name: sgd, learning_rate: 0.05, args: {momentum: 0.9}, schedule: {kind: constant}}",)
ADAMW = ("train.optimizer={name: adamw, args: {weight_decay: 0.01}, schedule: {kind: constant}}",)
REPLICAS = ("distribute.num_replicas=4",)
WORKERS = ("distribute.kind=multi_worker_mirrored", "distribute.num_workers=2")


@pytest.fixture(scope="module")
def names(trainer, workers, tmp_path_factory):
    """A trainer of the names in twelve languages."""
    workspace, config = tmp_path_factory.mktemp("names"), load_config(CONFIG)
    raw = download(config.data, workspace)
    shards = prepare(config.name, config.data, raw, workspace)
    return type(trainer)(replace(trainer.digits, workspace=workspace, config=config, shards=shards), workers)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("optimizer", "others"), [(SGD, [REPLICAS, WORKERS]), (ADAMW, [WORKERS])], ids=["sgd", "adamw"]
)
def test_a_transformer_gives_the_same_weights_on_replicas_and_workers(names, optimizer, others):
    one = names.weights(*EXACT, *optimizer, "distribute.num_replicas=1")
    for devices in others:
        other = names.weights(*EXACT, *optimizer, *devices)
        assert one.keys() == other.keys()
        # The seeds that Keras's attention keeps are not drawn from.
        assert max(float(np.abs(one[name] - other[name]).max()) for name in one if "seed" not in name) <= 1e-9
