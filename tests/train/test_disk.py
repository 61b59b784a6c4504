"""A checkpoint that cannot be written costs nothing but itself, and the training goes on once there is room."""

import contextlib
import subprocess

import pytest

from tasks.errors import TrainingError
from tasks.files import digest_file
from tasks.train.checkpoint import VARIABLES, completed
from tasks.train.stage import train


@contextlib.contextmanager
def mounted_on(folder, *what):
    """Yields whether something could be mounted on the folder: only the superuser may, and not everywhere."""
    folder.mkdir()
    mounted = subprocess.run(["mount", *what, folder], capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)


def test_on_a_full_disk_the_last_checkpoint_stays_and_with_room_the_training_goes_on(trainer, unbroken, tmp_path):
    disk = tmp_path / "disk"
    with mounted_on(disk, "-t", "tmpfs", "-o", "size=2m", "tmpfs") as mounted:
        # Where none can be mounted, the kernel refuses the worker's bytes for another reason.
        fault, reason = ("fill_disk", "No space left on device") if mounted else ("limit_files", "File too large")
        run = trainer.on(disk).faulty_run(fault, disk / "fired", steps=[18])
        with pytest.raises(TrainingError, match=reason) as error:
            train(run, trainer.digits.shards)
        assert (disk / "fired").read_text() == f"{fault} at step 18\n"
        assert str(error.value).startswith(f"{run.checkpoints}: the checkpoint of step 20 cannot be written (")
        assert str(error.value).endswith(
            "; the one of step 10 stays; make room or make it writable, and the same command goes on"
        )
        assert [int(path.name) for path in completed(run.checkpoints)] == [10]

        (disk / "filler").unlink(missing_ok=not mounted)
        result = train(run, trainer.digits.shards)
        assert result.resumed_from_step == 10
        assert digest_file(result.last_checkpoint / VARIABLES) == unbroken


def test_on_a_read_only_disk_the_last_checkpoint_stays_and_once_writable_the_training_goes_on(
    trainer, unbroken, tmp_path
):
    with mounted_on(tmp_path / "read_only", "--bind", tmp_path / "read_only") as mounted:
        # Where none can be mounted, the kernel refuses the worker's bytes for another reason.
        fault, reason = ("make_read_only", "Read-only file system") if mounted else ("limit_files", "File too large")
        run = trainer.faulty_run(fault, tmp_path / "fired", steps=[18])
        run.checkpoints.symlink_to(tmp_path / "read_only")
        with pytest.raises(TrainingError, match=reason) as error:
            train(run, trainer.digits.shards)
        assert (tmp_path / "fired").read_text() == f"{fault} at step 18\n"
        assert str(error.value).startswith(f"{run.checkpoints}: the checkpoint of step 20 cannot be written (")
        assert "; the one of step 10 stays; make room or make it writable, and the same command" in str(error.value)
        assert [int(path.name) for path in completed(run.checkpoints)] == [10]
        if mounted:
            subprocess.run(["mount", "-o", "remount,bind,rw", tmp_path / "read_only"], check=True)
        result = train(run, trainer.digits.shards)
        assert result.resumed_from_step == 10
        assert digest_file(result.last_checkpoint / VARIABLES) == unbroken


def test_files_that_the_kernel_refuses_are_told_although_the_log_is_one_of_them(trainer, tmp_path):
    run = trainer.faulty_run("limit_files", tmp_path / "fired", steps=[18])
    run.logs.mkdir()
    (run.logs / "train.log").write_bytes(bytes(1000))
    with pytest.raises(
        TrainingError, match=r"step 20 cannot be written \(.*File too large.*\); the one of step 10 stays"
    ):
        train(run, trainer.digits.shards)
    assert [int(path.name) for path in completed(run.checkpoints)] == [10]
