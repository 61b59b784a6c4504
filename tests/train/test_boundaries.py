"""Interrupted at every boundary, a run ends as if nothing had been: weights, history, report and exported model."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tasks import events
from tasks.errors import Stopped
from tasks.evaluate.report import PREDICTIONS
from tasks.evaluate.stage import evaluate, find_report
from tasks.export.stage import export
from tasks.files import damages, digest_file
from tasks.models.build import code_digest
from tasks.track.points import read_points
from tasks.track.tracked import Tracked
from tasks.train.checkpoint import VARIABLES, Position, completed
from tasks.train.stage import find_result, train
from tasks.workers import launch
from tests.train.interruptions import MOMENTS, interrupt

pytestmark = [pytest.mark.prove, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
SOME = [
    "in mid-epoch",
    "between the files of a checkpoint",
    "in the validation",
    "before COMPLETED",
    "in the writing of the report",
    "in the writing of the model",
]
HISTORY = ("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "learning_rate")


class End(NamedTuple):
    """What two runs of one config must agree on to the last bit."""

    weights: str
    best: tuple
    history: dict
    points: dict
    report: dict
    probabilities: bytes
    exported: dict
    model: dict


def end_of(run, shards):
    trained, report = find_result(run), find_report(run)
    exported = export(run, shards, trained, report)  # it is there and whole, or this fails for want of a worker
    directory = exported.directory
    points, _ = read_points(run.events, Tracked())
    return End(
        weights=digest_file(trained.last_checkpoint / VARIABLES),
        best=(trained.best_step, trained.best_value, trained.num_steps, trained.num_epochs),
        history={metric: events.history(run.events)[metric] for metric in HISTORY},
        points={metric: [(point.step, point.value) for point in points if point.key == metric] for metric in HISTORY},
        report=report.model_dump(mode="json", exclude={"checkpoint", "directory"}),
        predictions=(run.report / PREDICTIONS).read_bytes(),
        exported=exported.model_dump(mode="json", exclude={"directory", "digest", "size_bytes", "latencies"}),
        # Not saved_model.pb and fingerprint.pb, in which TensorFlow writes a random number.
        model={file.name: digest_file(file) for file in (directory / "variables").iterdir()},
    )


def new_run(trainer):
    return trainer.run(
        "train.total=3 epochs",
        "train.checkpoint_every=10 steps",
        "train.steps_per_call=8",
        "train.max_restarts=4",
        "distribute.hang_timeout_seconds=10",
        "distribute.slow_phase_factor=1",
        "model.build=models_for_tests:dense",
        "model.args={}",
        "evaluate.batch_size=50",
    )


def carry_out(run, shards):
    trained = train(run, shards)
    report = evaluate(run, shards, trained)
    export(run, shards, trained, report)


@pytest.fixture(scope="module")
def untouched(trainer):
    run = new_run(trainer)
    carry_out(run, trainer.digits.shards)
    return end_of(run, trainer.digits.shards)


@pytest.mark.parametrize(
    ("fault", "raised", "moments"),
    [
        ("SIGKILL", (), list(MOMENTS)),
        ("exit", (), SOME),
        ("hang", (), ["at the start", "in the first step", *SOME]),
        ("SIGTERM", Stopped, SOME),
        ("SIGINT of the flow", KeyboardInterrupt, list(MOMENTS)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_interrupted_at_every_boundary_in_turn_a_run_ends_like_one_that_was_not(
    trainer, untouched, tmp_path, monkeypatch, *, fault, raised, moments
):
    run, shards, fired = new_run(trainer), trainer.digits.shards, tmp_path / "fired"
    monkeypatch.setattr(launch, "call", launch.call)  # put back at the end
    interrupt(launch, fault, moments, fired)
    num_commands = 1
    while True:
        try:
            carry_out(run, shards)
            break
        except raised:
            num_commands += 1
    assert fired.read_text().splitlines() == moments
    # A lost worker is started again within the command. One that is asked to stop ends the command, unless it has
    # nothing left to do but to write.
    num_ended = {(): 0, Stopped: len(SOME) - 2, KeyboardInterrupt: len(MOMENTS)}
    assert num_commands == num_ended[raised] + 1
    assert end_of(run, shards) == untouched
    assert_nothing_is_left(run)


def test_kill_9_of_the_flow_at_each_kind_of_boundary_ends_in_the_same(trainer, untouched, tmp_path):
    run, shards, fired = new_run(trainer), trainer.digits.shards, tmp_path / "fired"
    arguments = [run.workspace, run.id, shards.model_dump_json(), code_digest(run.config.model)]
    command = [sys.executable, ROOT / "tests/train/interruptions.py", *arguments, "SIGKILL of the flow", fired]
    codes = [
        subprocess.run(
            [*map(str, command), *SOME], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
        ).returncode
        for _ in range(len(SOME) + 1)
    ]
    assert fired.read_text().splitlines() == SOME
    assert codes == [-9] * len(SOME) + [0]
    assert end_of(run, shards) == untouched
    assert_nothing_is_left(run)


def assert_nothing_is_left(run):
    """Asserts that every checkpoint is whole and nothing half-written lies about."""
    for path in completed(run.checkpoints):
        assert list(damages(path)) == []
        assert Position.read(path / "position.json").step == int(path.name)
    assert [int(path.name) for path in completed(run.checkpoints)][-1] == 69
    left = [*run.directory.rglob("*.incomplete"), *(run.workspace / "models").rglob("*.incomplete")]
    assert left == []
