"""With a parameter server workers learn without waiting for each other, and one may die."""

import pytest

from tasks.config import build_config
from tasks.errors import ConfigError
from tasks.train.checkpoint import newest_position
from tasks.train.stage import train

SERVED = ("distribute.kind=parameter_server", "train.deterministic=false")


@pytest.mark.prove
def test_workers_reach_the_accuracy_of_one_device(trainer):
    long = "train.total=15 epochs"
    one = train(
        trainer.run(long, "distribute.kind=one_device", "train.best_metric=val_accuracy"), trainer.digits.shards
    )
    served = train(trainer.run(long, *SERVED, "train.best_metric=val_accuracy"), trainer.digits.shards)
    assert served.devices == ("/job:worker/task:0", "/job:worker/task:1")
    assert served.num_steps == one.num_steps
    assert one.best_value >= 0.95
    assert served.best_value >= 0.95


def test_training_goes_on_without_a_worker_that_died(trainer, tmp_path, caplog):
    fired = tmp_path / "fired"
    run = trainer.faulty_run("kill_follower", fired, *SERVED)
    result = train(run, trainer.digits.shards)
    assert fired.read_text() == "kill_follower at step 38\n"
    assert (result.resumed_from_step, result.num_steps) == (0, 69)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(
        "tasks.train.loop:train was killed by SIGKILL (often the system's out-of-memory killer; with "
    )
    assert line.endswith(f"; see {run.logs / 'train.1.log'}: the others go on without it")


def test_what_a_parameter_server_cannot_keep_is_refused():
    with pytest.raises(
        ConfigError, match=r"^train.deterministic=true: does not go with distribute.kind=parameter_server"
    ):
        build_config({"name": "digits", "distribute": {"kind": "parameter_server"}})


@pytest.mark.prove
def test_a_training_that_is_stopped_keeps_its_work(trainer):
    run = trainer.run("train.total=69 steps", "train.checkpoint_every=69 steps", "train.steps_per_call=4", *SERVED)

    def stop(report):
        if report["phase"] == "step" and report["step"] >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.call("tasks.train.loop:train", run, on_progress=stop)
    assert newest_position(run.checkpoints).step >= 12
