"""Several workers end with the weights of one, whatever befalls one of them."""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks.errors import WorkerLost
from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train
from tasks.workers.cluster import environments_of

# 200 examples a batch: seven full batches and one of 37 an epoch.
EXACT = (
    "train.precision=float64",
    "train.total=20 steps",
    "train.optimizer.schedule.kind=constant",
    "train.clip.limit=0.5",
    "feed.global_batch_size=200",
)
TWO = ("distribute.kind=multi_worker_mirrored", "distribute.num_workers=2")


@pytest.fixture
def fired(tmp_path):
    """The file to which a fault that fires adds a line."""
    return tmp_path / "fired"


def test_two_workers_match_one_replica_in_float64(trainer):
    # Batch normalisation, dropout, clipping and short last batches are in it, and the validation of both.
    runs = [trainer.run(*EXACT, *devices) for devices in (("distribute.num_replicas=1",), TWO)]
    one, two = (trainer.train(run) for run in runs)
    left, right = (load_file(f"{result['last_checkpoint']}/{VARIABLES}") for result in (one, two))
    assert left.keys() == right.keys()
    assert max(float(np.abs(left[name] - right[name]).max()) for name in left) <= 1e-9
    assert (two["num_replicas"], two["best_step"]) == (2, one["best_step"])


@pytest.mark.prove
@pytest.mark.parametrize(
    ("fault", "worker", "said"),
    [
        ("SIGKILL", 1, "was killed by SIGKILL"),
        ("exit", 0, "ended with exit code 9"),
        ("cut_link", 1, "made no progress for 8 s in its phase 'step'|another worker cannot be reached"),
        # Whichever comes first: TensorFlow's heartbeats between the workers, or our watch over each.
        ("SIGSTOP", 1, "made no progress for 8 s in its phase 'step'|another worker cannot be reached"),
    ],
)
def test_a_lost_worker_of_two_restarts_both(trainer, unbroken, fired, caplog, *, fault, worker, said):
    run = trainer.faulty_run(fault, fired, *TWO, "distribute.hang_timeout_seconds=8", worker=worker)
    result = train(run, trainer.digits.shards)
    assert fired.read_text() == f"{fault} at step 38\n"
    (line,) = (record.getMessage() for record in caplog.records)
    assert re.search(said, line)
    assert line.endswith("; restart 1 of 3, from step 30")
    assert digest_file(result.last_checkpoint / VARIABLES) == unbroken, "bit-equal, and to two replicas of one worker"


def test_a_worker_that_is_missing_at_the_start_is_noticed(trainer, workers):
    run = trainer.run(*TWO)
    arguments = {"workspace": str(trainer.digits.workspace), "run_id": run.id}
    chief, _ = environments_of(run.config.distribute)
    with pytest.raises(WorkerLost, match=r"made no progress for 4 s in its phase 'start' and was stopped; the stacks"):
        workers.call(
            "tasks.train.loop:train",
            arguments | {"shards": trainer.digits.shards.model_dump(mode="json")},
            log=run.logs / "train.log",
            environments=[chief],
            hang_timeout_seconds=2,
            slow_phase_factor=2,
            stop_grace_seconds=0.1,
        )
    assert "open_strategy" in (run.logs / "train.log").read_text()


@pytest.mark.prove
def test_rows_of_any_type_are_gathered_from_all_workers(trainer):
    found = trainer.call("train_functions:gathered_rows", trainer.run(*TWO))
    assert found == {name: [name, [0, 0, 1, 1]] for name in ("bool", "uint8", "bfloat16", "float64")}


@pytest.mark.prove
@pytest.mark.parametrize(
    "settings",
    [
        (
            "train.total=30 steps",
            "train.class_weights={'0': 4, '3': 0.25}",
            "train.label_smoothing=0.1",
            "train.ema={momentum: 0.9}",
            "train.clip={by: value, limit: 0.01}",
            "train.optimizer={name: sgd, learning_rate: 0.05, args: {momentum: 0.9}, schedule: {kind: constant}}",
        ),
        ("train.total=3 steps", "feed.global_batch_size=1"),
    ],
    ids=["weights, smoothing, averages, penalties, dropout, microbatches", "a batch smaller than the workers"],
)
def test_what_else_goes_into_a_step_is_the_same_on_two_workers(trainer, settings):
    model = ("model.build=models_for_tests:penalised", "model.args={}")
    one = trainer.weights(*EXACT, *model, *settings, "distribute.num_replicas=1")
    two = trainer.weights(*EXACT, *model, *settings, *TWO, "train.microbatch=32")
    assert one.keys() == two.keys()
    assert max(float(np.abs(one[name] - two[name]).max()) for name in one) <= 1e-9


@pytest.mark.prove
def test_an_overflow_on_one_worker_is_left_out_on_both_as_on_two_replicas(trainer):
    settings = (
        "model.build=faulty_models:poisoned",
        "model.args={id: 5, normalised: true}",
        "train.precision=mixed_float16",
        "train.total=2 epochs",
        "train.optimizer={name: sgd, learning_rate: 0.1, schedule: {kind: constant}}",
    )
    runs = [trainer.run(*settings, *devices) for devices in (("distribute.num_replicas=2",), TWO)]
    replicas, workers = (trainer.train(run) for run in runs)
    assert replicas["num_overflows"] == workers["num_overflows"] == 2, "the example comes once an epoch"
    left, right = (load_file(f"{result['last_checkpoint']}/{VARIABLES}") for result in (replicas, workers))
    assert all(np.array_equal(left[name], right[name]) for name in left)
