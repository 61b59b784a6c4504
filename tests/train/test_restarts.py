"""A worker that is lost is started again, and the training ends as if nothing had been."""

import re

import pytest

from tasks.errors import RunError, WorkerError, WorkerLost
from tasks.files import digest_file, lock
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train
from tests.train.conftest import SHORT

MEMORY = r"with [\d,]+ MB in memory when last heard of"


@pytest.fixture
def fired(tmp_path):
    """The file to which a fault that fires adds a line."""
    return tmp_path / "fired"


def shards(trainer):
    return trainer.digits.shards


def lines(fired):
    return fired.read_text().splitlines()


def digest(result):
    return digest_file(result.last_checkpoint / VARIABLES)


@pytest.mark.prove
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("SIGSEGV", rf"was killed by SIGSEGV \({MEMORY}\); see "),
        ("exit", "ended with exit code 9 before it returned; see the end of "),
    ],
)
def test_a_worker_lost_in_mid_epoch_is_restarted(trainer, unbroken, fired, caplog, *, fault, said):
    run = trainer.faulty_run(fault, fired)
    result = train(run, shards(trainer))
    assert lines(fired) == [f"{fault} at step 38"]
    (line,) = (record.getMessage() for record in caplog.records)
    log = re.escape(str(run.logs / "train.log"))
    assert re.fullmatch(rf"train: tasks.train.loop:train {said}{log}; restart 1 of 3, from step 30", line)
    assert result.resumed_from_step == 30
    assert digest(result) == unbroken, "bit-equal"


@pytest.mark.prove
@pytest.mark.parametrize(("fault", "phase"), [("the feed ends", "steps"), ("SIGSTOP", "step")])
def test_a_worker_that_gets_no_batch_or_is_stopped_is_restarted_and_its_stacks_are_in_the_log(
    trainer, unbroken, fired, caplog, *, fault, phase
):
    if fault == "SIGSTOP":
        run = trainer.faulty_run(fault, fired, "distribute.hang_timeout_seconds=8")
    else:
        model = ("model.build=faulty_models:starved", f"model.args={{step: 38, fired: {fired}}}")
        run = trainer.run(*SHORT, *model, "distribute.hang_timeout_seconds=8")
    result = train(run, shards(trainer))
    assert lines(fired) == [f"{fault} at step 38"]
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"made no progress for 8 s in its phase {phase!r} and was stopped; the stacks" in line
    assert line.endswith("; restart 1 of 3, from step 30")
    # A process that the kernel has stopped cannot write.
    assert ("in stall\n" in (run.logs / "train.log").read_text()) == (fault != "SIGSTOP")
    assert digest(result) == unbroken


def test_at_the_limit_signal_restarts_and_log_are_named(trainer, fired, caplog):
    run = trainer.faulty_run("SIGSEGV", fired, "train.max_restarts=2", steps=[35] * 9)
    with pytest.raises(WorkerLost) as error:
        train(run, shards(trainer))
    assert len(lines(fired)) == 3
    assert [record.getMessage().partition("; restart ")[2] for record in caplog.records] == [
        "1 of 2, from step 30",
        "2 of 2, from step 30",
    ]
    assert re.fullmatch(
        rf"tasks.train.loop:train was killed by SIGSEGV \({MEMORY}\); see {re.escape(str(run.logs / 'train.log'))}; "
        "restarts without a new checkpoint since step 30: 2 of train.max_restarts=2; once the cause is gone, the same "
        "command goes on",
        str(error.value),
    )


def test_a_worker_killed_in_mid_epoch_is_restarted_and_a_new_checkpoint_begins_the_count_anew(
    trainer, unbroken, fired, caplog
):
    run = trainer.faulty_run("SIGKILL", fired, "train.max_restarts=1", steps=[15, 35])
    result = train(run, shards(trainer))
    assert lines(fired) == ["SIGKILL at step 18", "SIGKILL at step 38"]
    said = rf"was killed by SIGKILL \(often the system's out-of-memory killer; {MEMORY}\); see "
    log = re.escape(str(run.logs / "train.log"))
    for record, step in zip(caplog.records, (10, 30), strict=True):
        expected = rf"train: tasks.train.loop:train {said}{log}; restart 1 of 1, from step {step}"
        assert re.fullmatch(expected, record.getMessage())
    assert result.resumed_from_step == 30
    assert digest(result) == unbroken


def test_a_second_training_on_one_run_is_refused_and_changes_nothing(trainer, fired):
    run = trainer.faulty_run("SIGKILL", fired)
    with lock(run.worker_lock), pytest.raises(RunError, match=f"{run.worker_lock}: is held by another worker"):
        train(run, shards(trainer))
    assert not run.checkpoints.exists()
    assert not fired.exists()


def test_what_the_worker_raised_is_not_tried_again(trainer, fired, caplog):
    with pytest.raises(WorkerError, match="ZeroDivisionError") as error:
        train(trainer.faulty_run("raise", fired), shards(trainer))
    assert type(error.value) is WorkerError
    assert len(lines(fired)) == 1
    assert caplog.records == []
