"""Batches that come out short, of a row for some replicas and of none for others, give the weights of one replica."""

import math

import numpy as np
import pytest

from tasks import events
from tasks.config import build_config
from tasks.download.download import download
from tasks.prepare.prepare import prepare
from tests.conftest import Digits
from tests.train.conftest import Trainer

NUM_ROWS = {"train": 33, "validation": 1, "test": 1}


@pytest.fixture(scope="module")
def rows(workers, tmp_path_factory):
    """A trainer of a table with so few rows: two inputs of which the class follows."""
    workspace = tmp_path_factory.mktemp("rows")
    source = {"kind": "table", "path": str(workspace / "table"), "target": "sign"}
    (workspace / "table").mkdir()
    rng = np.random.default_rng(0)
    for split, count in NUM_ROWS.items():
        lines = [
            f"{a},{b},{'plus' if a + b > 0 else 'minus'}" for a, b in rng.normal(size=(count, 2)).round(3).tolist()
        ]
        (workspace / "table" / f"{split}.csv").write_text("\n".join(["a,b,sign", *lines]) + "\n")
    tree = {
        "name": "rows",
        "data": {"source": source, "splits": {"kind": "file", **{split: f"{split}.csv" for split in NUM_ROWS}}},
        "model": {"build": "models_for_tests:of_rows", "args": {}},
        "train": {"precision": "float64", "optimizer": {"schedule": {"kind": "constant"}}, "total": "2 epochs"},
    }
    config = build_config(tree)
    shards = prepare(config.name, config.data, download(config.data, workspace), workspace)
    assert shards.num_examples == NUM_ROWS
    return Trainer(Digits(workspace, config, shards), workers)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("batch_size", "num_replicas"),
    [(8, (2, 4)), (5, (2,)), (37, (4,))],
    ids=["the last of one row", "a batch that is odd", "all rows in a batch that is not full"],
)
def test_few_rows_give_the_same_weights_on_any_number_of_replicas(rows, batch_size, num_replicas):
    ends = {}
    for count in (1, *num_replicas):
        settings = (f"feed.global_batch_size={batch_size}", f"distribute.num_replicas={count}")
        run = rows.run(*settings)
        result = rows.train(run)
        assert result["num_steps"] == 2 * math.ceil(33 / batch_size)
        ends[count] = (rows.arrays(result), events.history(run.events)["val_loss"])
    (weights, losses) = ends.pop(1)
    assert all(np.isfinite(array).all() for array in weights.values())
    for others, other_losses in ends.values():
        assert weights.keys() == others.keys()
        assert max(float(np.abs(weights[name] - others[name]).max()) for name in weights) <= 1e-9
        assert list(other_losses.values()) == pytest.approx(list(losses.values()), abs=1e-9)
