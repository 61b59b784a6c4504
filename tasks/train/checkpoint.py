"""Checkpoints: every variable and the position, written beside the training, whole or not at all."""

import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tasks.errors import DataError, TrainingError
from tasks.files import Record, atomic_directory, is_completed, verify

if TYPE_CHECKING:
    import keras

VARIABLES = "variables.safetensors"
POSITION = "position.json"
logger = logging.getLogger("millstream")


class Position(Record):
    """How far a training has come; with the variables it is all that a resume needs."""

    step: int = 0
    """Steps done; the feed goes on with the batch of this number."""
    skipped: tuple[int, ...] = ()
    """Steps of which nothing is applied: `train.on_nonfinite: rollback` leaves their batches out."""
    steps_per_epoch: int = 0
    """Batches of an epoch; with feed.shard_policy=files it depends on the number of workers, and the order with it."""
    statistics_rows: int | None = None
    """Examples that the model normalises over at once, if they are less than a global batch; a training holds to it."""
    precision: str = ""
    """What `train.precision` came to: a training goes on in it, also where auto would now choose another."""
    num_overflows: int = 0
    """Steps, counted in `step`, that overflowed in mixed_float16 and were not applied."""
    epoch_loss_sum: float = 0.0
    """Sum over the examples of this epoch so far of their batch's loss."""
    epoch_score_sum: float = 0.0
    """Sum over them of Head.score: how many were right, or of a regression the absolute errors."""
    epoch_num_examples: int = 0
    best_step: int = 0
    """0 until the first validation."""
    best_value: float | None = None
    awaited_value: float | None = None
    """Value of train.early_stopping.metric that a validation has to better; None until one was finite."""
    awaited_step: int = 0
    stopped_early: str = ""
    """Why the training is at its end here; empty unless train.early_stopping says so."""


def path_of(directory: Path, step: int) -> Path:
    """Returns where the checkpoint of a step lies, or would lie."""
    return directory / f"{step:08d}"


class Writer:
    """Writes the checkpoints of a training beside it: one at a time, in their order.

        with Writer(directory, keep=3) as writer:
            writer.save(variables, position, replaces_older=True)

    What a write raises is raised by the next call, or at the end of the block, which waits for the last of them.
    """

    def __init__(self, directory: Path, *, keep: int) -> None:
        self._directory, self._keep = directory, keep
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._written: Future[None] | None = None

    def save(self, variables: Sequence["keras.Variable"], position: Position, *, replaces_older: bool) -> None:
        """Takes a copy of the values and returns; the checkpoint of `position.step` is there after `wait`.

        `replaces_older` deletes what is not kept any more, once this one is whole.
        """
        self.wait()
        self._written = self._thread.submit(self._write, snapshot(variables), position, replaces_older)

    def wait(self) -> None:
        """Returns once the last checkpoint is whole; raises TrainingError if it could not be written."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def _write(self, arrays: Mapping[str, np.ndarray], position: Position, replaces_older: bool) -> None:
        save(self._directory, arrays, position)
        if replaces_older:
            prune(self._directory, keep=self._keep, step=position.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.wait()
        except Exception as unwritten:
            if error is None:
                raise
            logger.warning("%s", unwritten)  # what ended the training is the greater news
        finally:
            self._thread.shutdown()


def snapshot(variables: Sequence["keras.Variable"]) -> dict[str, np.ndarray]:
    """Returns a copy of every value in the host's memory, by what has to agree before it is loaded again."""
    return dict(zip(_keys(variables), (np.array(variable.value, order="C") for variable in variables), strict=True))


def save(directory: Path, arrays: Mapping[str, np.ndarray], position: Position) -> None:
    """Writes the checkpoint of `position.step` with a `snapshot`, synced and marked COMPLETED.

    Raises TrainingError if it cannot be written, because the disk is full for example; those before it stay.
    """
    try:
        with atomic_directory(path_of(directory, position.step)) as incomplete:
            save_file(dict(arrays), incomplete / VARIABLES)
            position.write(incomplete / POSITION)
    except (OSError, SafetensorError) as error:
        last = max((int(checkpoint.name) for checkpoint in completed(directory)), default=None)
        stays = "there is none before it" if last is None else f"the one of step {last} stays"
        raise TrainingError(
            f"{directory}: the checkpoint of step {position.step} cannot be written ({error}); {stays}; "
            "make room or make it writable, and the same command goes on"
        ) from error


def restore_newest(directory: Path, variables: Sequence["keras.Variable"]) -> Position | None:
    """Loads the newest checkpoint that verifies into `variables` and returns its position; None if there is none.

    What does not verify is passed over, and said. Raises TrainingError if one verifies but belongs to other variables.
    """
    for checkpoint in reversed(_numbered(directory)):
        try:
            verify(checkpoint)
        except DataError as error:
            logger.warning("checkpoint passed over: %s", error)
            continue
        load(checkpoint, variables)
        return Position.read(checkpoint / POSITION)
    return None


def newest_position(directory: Path) -> Position | None:
    """Returns the position of the newest checkpoint that verifies, without its variables; None if there is none."""
    for checkpoint in reversed(_numbered(directory)):
        with contextlib.suppress(DataError):  # `restore_newest` says so
            verify(checkpoint)
            return Position.read(checkpoint / POSITION)
    return None


def load(checkpoint: Path, variables: Sequence["keras.Variable"]) -> None:
    """Loads a checkpoint into `variables`, which may be the first of those that were saved (a model's, without the
    optimizer's). Raises TrainingError before anything is assigned if path, shape or dtype of one differs.
    """
    with safe_open(checkpoint / VARIABLES, framework="numpy") as file:
        stored = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        for key in _keys(variables):
            if key not in stored:
                near = next((name for name in stored if name[:4] == key[:4]), "nothing")
                raise TrainingError(
                    f"{checkpoint}: holds {near} where the model has {key}; the model or the optimizer was changed "
                    "since: begin a new run with --fresh, or put the change back"
                )
        values = [file.get_tensor(key) for key in _keys(variables)]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def completed(directory: Path) -> list[Path]:
    """Returns the completed checkpoints, oldest first."""
    return [checkpoint for checkpoint in _numbered(directory) if is_completed(checkpoint)]


def prune(directory: Path, *, keep: int, step: int) -> None:
    """Deletes all but the checkpoint of `step`, just written, the `keep` - 1 before it, and the best that each knows.

    One beyond `step` was passed over when the training began: it is damaged and takes no good one's place.
    """
    latest = [checkpoint for checkpoint in completed(directory) if int(checkpoint.name) <= step][-keep:]
    kept = {*latest, *(path_of(directory, _best_step(checkpoint)) for checkpoint in latest)}
    for checkpoint in _numbered(directory):
        if checkpoint not in kept:
            shutil.rmtree(checkpoint)


def _numbered(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.name.isdigit())


def _best_step(checkpoint: Path) -> int:
    try:
        return Position.read(checkpoint / POSITION).best_step
    except DataError:  # damaged since it was written, so that no training will go on from it
        return 0


def _keys(variables: Sequence["keras.Variable"]) -> list[str]:
    """Returns what has to agree before a value is loaded: place, path, shape and dtype of each variable."""
    return [f"{i:04d} {v.path} {tuple(v.shape)} {v.dtype}" for i, v in enumerate(variables)]
