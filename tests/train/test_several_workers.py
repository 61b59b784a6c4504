"""Several workers end with the weights of one, whatever befalls one of them."""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks.errors import Stopped, WorkerLost
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


@pytest.mark.prove
def test_workers_that_are_told_to_stop_stop_at_one_step(trainer, fired):
    run = trainer.faulty_run("SIGTERM", fired, *TWO, worker=1)
    with pytest.raises(Stopped, match="stopped by a signal at step 38"):
        train(run, trainer.digits.shards)
    result = train(trainer.digits.same_run(run, "distribute.kind=one_device"), trainer.digits.shards)
    assert result.resumed_from_step == 38
    assert result.num_steps == 69


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
