"""The training stage as the flow process sees it: done already, or a worker is asked."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tasks.errors import DataError
from tasks.files import verify
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.checkpoint import completed
from tasks.train.microbatch import settle_microbatch
from tasks.train.result import RESULT, TrainResult
from tasks.workers.restarts import call_for_run

logger = logging.getLogger("millstream")


def train(run: Run, shards: Shards, *, on_note: Callable[[], None] = lambda: None) -> TrainResult:
    """Returns the result of the run's training; what a run has trained to its end is never trained again.

    `on_note` is called after each epoch, and whenever else there is something to tell; what it raises stops the worker,
    which writes a checkpoint first.

    A worker that is lost is started again, from the newest checkpoint, `train.max_restarts` times without a new one.
    Raises WorkerLost after that, and at once what the worker itself raised (ConfigError, TrainingError, WorkerError).
    """
    if _is_trained(run):
        result = find_result(run)
        logger.info("train: done already, best step %d", result.best_step)
        return result
    settle_microbatch(run, shards)
    with _progress_bar(on_note) as show:
        answer = call_for_run(
            run,
            "train",
            "tasks.train.loop:train",
            {"shards": shards.model_dump(mode="json")},
            together=True,
            newest_step=lambda: _newest_step(run),
            on_progress=show,
        )
    result = TrainResult.model_validate(answer)
    result.write(run.directory / RESULT)
    return result


def find_result(run: Run) -> TrainResult:
    """Returns the result of a run that was trained to its end; raises DataError if it was not, or is damaged."""
    if not _is_trained(run):
        raise DataError(f"run {run.id} was not trained to its end; go on with `millstream train` or `millstream run`")
    result = TrainResult.read(run.directory / RESULT)
    try:
        verify(result.best_checkpoint)
    except DataError as error:
        # What `verify` advises would not help: a training that is done is not gone through again.
        what = str(error).partition(";")[0]
        raise DataError(f"run {run.id}: its best checkpoint is lost ({what}); begin a new run with --fresh") from None
    return result


def _is_trained(run: Run) -> bool:
    """Returns whether the run was trained to its present total; a result of before it was given a longer one is old."""
    path = run.directory / RESULT
    return path.is_file() and (TrainResult.read(path).total or run.config.train.total) == run.config.train.total


def _newest_step(run: Run) -> int:
    return max((int(checkpoint.name) for checkpoint in completed(run.checkpoints)), default=0)


@contextmanager
def _progress_bar(on_note: Callable[[], None]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields what shows a worker's progress: a bar on a terminal, and a logged line for each note."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("train"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps  {task.description}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as bar:
        shown = bar.add_task("starts", total=None)

        def show(message: dict[str, Any]) -> None:
            if message["phase"] == "step":
                rate = f"{message['examples_per_second']:,.0f} examples/s"
                bar.update(shown, completed=message["step"], total=message["total"], description=rate)
            elif message["phase"] == "note":
                logger.info("train: %s", message["line"])
                on_note()

        yield show
