"""Fixtures for tests of training."""

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train
from tasks.workers.cluster import environments_of

HERE = Path(__file__).parent
# 23 steps an epoch; calls end at 8, 10, 18, 20, 23, 31, 33, ... and checkpoints stand at 10, 20, 23, 30, 40, 46, ...
SHORT = ("train.total=3 epochs", "train.checkpoint_every=10 steps", "train.steps_per_call=8")


class Trainer:
    """Trains runs of the digits in worker processes."""

    def __init__(self, digits, workers):
        self.digits, self._workers = digits, workers

    def on(self, workspace):
        """Returns a trainer of the same shards whose runs lie in another workspace."""
        return Trainer(replace(self.digits, workspace=workspace), self._workers)

    def run(self, *overrides):
        return self.digits.run(f"model.folder={HERE}", *overrides)

    def faulty_run(self, fault, fired, *overrides, steps=(35,), worker=0):
        """Returns a new short run whose workers suffer `fault` once for each of `steps`; `fired` is told of it."""
        args = f"{{fault: {fault}, steps: {list(steps)}, fired: {fired}, worker: {worker}}}"
        return self.run(*SHORT, "model.build=faulty_models:faulty", f"model.args={args}", *overrides)

    def call(self, function, run, *, on_progress=None, **arguments):
        shards = self.digits.shards.model_dump(mode="json")
        arguments = {"workspace": str(self.digits.workspace), "run_id": run.id, "shards": shards, **arguments}
        return self._workers.call(
            function,
            arguments,
            log=run.logs / "train.log",
            environments=environments_of(run.config.distribute),
            import_path=[str(HERE)],
            on_progress=on_progress,
        )

    def train(self, run):
        return self.call("tasks.train.loop:train", run)

    def weights(self, *overrides):
        """Returns the arrays of the last checkpoint of a new run: the model's variables and the optimizer's."""
        return self.arrays(self.train(self.run(*overrides)))

    def arrays(self, result):
        """Returns the arrays of the last checkpoint of a training that returned this."""
        return load_file(Path(result["last_checkpoint"]) / VARIABLES)


@pytest.fixture(scope="session")
def trainer(digits, workers):
    return Trainer(digits, workers)


@pytest.fixture(scope="session")
def unbroken(trainer):
    """The digest of the weights at the end of a `faulty_run` that nothing befalls."""
    run = trainer.run(*SHORT, "model.build=models_for_tests:dense", "model.args={}")
    return digest_file(train(run, trainer.digits.shards).last_checkpoint / VARIABLES)
