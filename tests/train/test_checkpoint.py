"""A damaged checkpoint is never trusted, and never takes a good one's place."""

import shutil
from pathlib import Path

import pytest

from tasks.errors import WorkerLost
from tasks.files import COMPLETED, digest_file
from tasks.runs import Run
from tasks.train.checkpoint import POSITION, VARIABLES, Position, completed, path_of, prune, restore_newest, save
from tasks.train.stage import train


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zero(file):
    file.write_bytes(bytes(file.stat().st_size))


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def garble(file):
    """Adds a blank; a receipt that loses its size is JSON still."""
    file.write_bytes(file.read_bytes().replace(b"size_bytes", b"size_bytez", 1) + b" ")


DAMAGES = {
    f"{file} {damage.__name__}": (file, damage)
    for file in (VARIABLES, POSITION, COMPLETED)
    for damage in (truncate, zero, flip, garble, Path.unlink)
}


@pytest.fixture(scope="module")
def interrupted(trainer, tmp_path_factory):
    """A run that was lost at step 46 with the checkpoints 10, 20, 23, 30 and 40."""
    fired = tmp_path_factory.mktemp("interrupted") / "fired"
    run = trainer.faulty_run("SIGKILL", fired, "train.max_restarts=0", "train.keep_checkpoints=9", steps=[46])
    with pytest.raises(WorkerLost, match="SIGKILL"):
        train(run, trainer.digits.shards)
    assert fired.read_text() == "SIGKILL at step 46\n"
    assert [int(path.name) for path in completed(run.checkpoints)] == [10, 20, 23, 30, 40]
    return run


@pytest.fixture(scope="module")
def restored(trainer, interrupted, tmp_path_factory):
    """What is restored of each copy of the checkpoints whose newest suffered one of DAMAGES."""
    copies = {}
    for name, (file, damage) in DAMAGES.items():
        copies[name] = tmp_path_factory.mktemp("copies") / "checkpoints"
        shutil.copytree(interrupted.checkpoints, copies[name])
        damage(path_of(copies[name], 40) / file)
    paths = {name: str(path) for name, path in copies.items()}
    found = trainer.call("train_functions:restore_each", interrupted, directories=paths)
    return {name: (copies[name], found[name]) for name in copies}


@pytest.mark.parametrize("name", DAMAGES)
def test_of_a_damaged_checkpoint_nothing_is_taken_but_the_one_before_it_and_it_is_said(restored, name):
    directory, found = restored[name]
    assert found["step"] == 30
    shutil.copyfile(path_of(directory, 30) / VARIABLES, directory / "expected")
    assert found["weights"] == digest_file(directory / "expected")
    (line,) = found["said"]
    assert line.startswith(f"checkpoint passed over: {path_of(directory, 40)}")
    file, _ = DAMAGES[name]
    assert f"/{file}: " in line or file == COMPLETED  # a damaged receipt may blame the file that it is of


def test_a_training_whose_newest_checkpoint_lost_its_mark_ends_bit_equal(trainer, interrupted, unbroken):
    run = Run(interrupted.directory.with_name("unmarked"), interrupted.config)
    shutil.copytree(interrupted.directory, run.directory)
    (path_of(run.checkpoints, 40) / COMPLETED).unlink()
    result = train(run, trainer.digits.shards)
    assert result.resumed_from_step == 30
    assert f"passed over: {path_of(run.checkpoints, 40)}: has no COMPLETED" in (run.logs / "train.log").read_text()
    assert digest_file(result.last_checkpoint / VARIABLES) == unbroken


def write(directory, best_steps):
    """Writes checkpoints without variables; `best_steps`: {step: the best that it knows}."""
    for step, best_step in best_steps.items():
        save(directory, {}, Position(step=step, best_step=best_step))


@pytest.mark.parametrize(("keep", "left"), [(1, [46]), (2, [23, 40, 46]), (9, [10, 20, 23, 30, 40, 46])])
def test_retention_keeps_the_best_of_each_that_a_training_may_go_on_from(tmp_path, keep, left):
    write(tmp_path, {10: 0, 20: 0, 23: 23, 30: 23, 40: 23, 46: 46})
    prune(tmp_path, keep=keep, step=46)
    assert [int(path.name) for path in completed(tmp_path)] == left


def test_retention_never_keeps_a_damaged_checkpoint_in_place_of_a_good_one(tmp_path):
    write(tmp_path, {10: 0, 40: 0})
    flip(path_of(tmp_path, 40) / VARIABLES)
    position = restore_newest(tmp_path, [])
    assert position.step == 10
    write(tmp_path, {15: 0})  # the checkpoints may lie elsewhere in the next process
    prune(tmp_path, keep=1, step=15)
    assert restore_newest(tmp_path, []).step == 15
    assert [path.name for path in tmp_path.iterdir()] == ["00000015"]


def test_retention_survives_an_old_checkpoint_whose_position_is_damaged(tmp_path):
    write(tmp_path, {10: 0, 20: 0})
    zero(path_of(tmp_path, 10) / POSITION)
    prune(tmp_path, keep=2, step=20)
    assert [int(path.name) for path in completed(tmp_path)] == [10, 20]
