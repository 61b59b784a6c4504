"""Fixtures for all tests."""

import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

# First of all: Prefect sets up logging when it is imported, and closes the streams of the handlers it finds. That of
# absl, which comes with TensorFlow, has what pytest has put in the place of stderr.
import prefect.main  # noqa: F401
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from tasks.config import Config, build_config, load_config
from tasks.download.download import download
from tasks.evaluate.report import EvalReport
from tasks.evaluate.stage import evaluate
from tasks.export.manifest import ExportManifest
from tasks.export.stage import export
from tasks.files import atomic_directory
from tasks.models.build import code_digest
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import prepare
from tasks.runs import Run, open_run
from tasks.train.checkpoint import POSITION, VARIABLES
from tasks.train.result import TrainResult
from tasks.train.stage import train
from tasks.workers import launch


@pytest.fixture(scope="session", autouse=True)
def no_server_of_the_user() -> Iterator[None]:
    """Runs go into their workspace's own database, whatever the shell that runs the tests has set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts_count() -> None:
    """A shell starts what it puts into the background with SIGINT ignored, and every process below inherits that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def workers() -> Iterator[ModuleType]:
    """tasks.workers.launch with its server started; one server for all tests, so that TensorFlow is imported once.

    `workers.call("module:function", {...}, log=tmp_path / "log", import_path=[the folder of module])`.
    """
    launch.warm_up()
    yield launch
    launch.shut_down()


@dataclass(frozen=True)
class Digits:
    """The digits as shards in a workspace of their own, and their config."""

    workspace: Path
    config: Config
    shards: Shards

    def run(self, *overrides: str) -> Run:
        """Returns a new run of the digits with overrides, not yet trained."""
        config = build_config(self.config.model_dump(mode="json"), overrides)
        digest = code_digest(config.model, config.train.loss)
        with open_run(
            self.workspace, config, data_digest=self.shards.data_digest, code_digest=digest, fresh=True
        ) as run:
            return run

    def same_run(self, run: Run, *overrides: str) -> Run:
        """Returns a run as it is when it is gone on with under overrides, such as other devices or a longer total."""
        config = build_config(run.config.model_dump(mode="json"), overrides)
        digest = code_digest(config.model)
        with open_run(
            self.workspace, config, data_digest=self.shards.data_digest, code_digest=digest, run_id=run.id
        ) as same:
            return same


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Digits:
    """The real digits, downloaded and prepared once; tests make runs in it but never change the shards."""
    workspace = tmp_path_factory.mktemp("digits")
    config = load_config(Path(__file__).parent.parent / "conf" / "digits.yaml")
    raw = download(config.data, workspace)
    return Digits(workspace, config, prepare(config.name, config.data, raw, workspace))


@dataclass(frozen=True)
class TrainedRun:
    """A run of the digits that was trained, for two epochs on two replicas."""

    run: Run
    shards: Shards
    result: TrainResult

    def copy(self, run_id: str, *overrides: str) -> "TrainedRun":
        """Returns a copy that a test may spoil, without a report or an exported model; `overrides` are operational."""
        directory = self.run.directory.with_name(run_id)
        shutil.copytree(self.run.directory, directory, ignore=shutil.ignore_patterns(self.run.report.name))
        config = build_config(self.run.config.model_dump(mode="json"), overrides)
        (directory / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
        run = Run(directory, config)
        best = run.checkpoints / self.result.best_checkpoint.name
        return TrainedRun(run, self.shards, self.result.model_copy(update={"best_checkpoint": best}))

    def take(self, report: EvalReport) -> EvalReport:
        """Returns the report of the run that this is a copy of, as its own."""
        shutil.copytree(report.directory, self.run.report)
        return report.model_copy(update={"directory": self.run.report, "checkpoint": self.result.best_checkpoint})

    def evaluate(self) -> EvalReport:
        """Returns the report of the best checkpoint."""
        return evaluate(self.run, self.shards, self.result)

    def export(self, report: EvalReport) -> ExportManifest:
        """Returns the exported model of the best checkpoint."""
        return export(self.run, self.shards, self.result, report)

    def change_weights(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        """Puts a checkpoint that verifies in the place of the best, the last layer's bias [10] changed."""
        saved = self.result.best_checkpoint
        arrays, position = load_file(saved / VARIABLES), (saved / POSITION).read_bytes()
        (bias,) = (name for name in arrays if "/bias (10,) " in name)
        with atomic_directory(saved) as incomplete:
            save_file({**arrays, bias: change(arrays[bias])}, incomplete / VARIABLES)
            (incomplete / POSITION).write_bytes(position)


@pytest.fixture(scope="session")
def trained_run(digits: Digits, workers: ModuleType) -> TrainedRun:
    """A run trained once for all tests; its evaluation batches are of 50, so that the last of 180 examples is short."""
    run = digits.run(
        "train.total=2 epochs",
        "train.optimizer.schedule.kind=constant",
        "distribute.num_replicas=2",
        "evaluate.batch_size=50",
        "evaluate.slices=[label]",
    )
    return TrainedRun(run, digits.shards, train(run, digits.shards))


@pytest.fixture(scope="session")
def report(trained_run: TrainedRun) -> EvalReport:
    """The report of `trained_run`."""
    return trained_run.evaluate()


@pytest.fixture(scope="session")
def exported(trained_run: TrainedRun, report: EvalReport) -> ExportManifest:
    """The exported model of `trained_run`."""
    return trained_run.export(report)
