"""Fixtures for tests of training."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

HERE = Path(__file__).parent


class Trainer:
    """Trains runs of the digits in worker processes."""

    def __init__(self, digits, workers):
        self.digits, self._workers = digits, workers

    def run(self, *overrides):
        return self.digits.run(f"model.folder={HERE}", *overrides)

    def call(self, function, run, **arguments):
        shards = self.digits.shards.model_dump(mode="json")
        arguments = {"workspace": str(self.digits.workspace), "run_id": run.id, "shards": shards, **arguments}
        return self._workers.call(function, arguments, log=run.logs / "train.log", import_path=[str(HERE)])

    def train(self, run):
        return self.call("tasks.train.loop:train", run)

    def weights(self, *overrides):
        """Returns the arrays of the last checkpoint of a new run: the model's variables and the optimizer's."""
        result = self.train(self.run(*overrides))
        return load_file(Path(result["last_checkpoint"]) / "variables.safetensors")


@pytest.fixture(scope="session")
def trainer(digits, workers):
    return Trainer(digits, workers)
