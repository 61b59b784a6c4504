"""Restarts: the worker of a run's stage, and another in its place each time it is lost."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.errors import OutOfMemory, WorkerLost
from tasks.runs import Run
from tasks.workers import launch
from tasks.workers.cluster import environments_of, expendable_workers
from tasks.workers.lost_devices import without_lost_devices
from tasks.workers.network import is_private

logger = logging.getLogger("millstream")


def call_for_run(
    run: Run,
    stage: str,
    function: str,
    arguments: dict[str, Any],
    *,
    together: bool = False,
    newest_step: Callable[[], int] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    before_restart: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Returns what `function` returned in the one worker that is at work on the run; its log is logs/<stage>.log.

    It is called with `workspace`, `run_id` and `arguments`. If its worker is lost it is called again,
    `train.max_restarts` times; with `newest_step`, which tells the newest checkpoint, so often without a new one.
    With `together` it is called in all workers of the run's `distribute` at once, and what the first returned is the
    answer. `before_restart` tidies up what a lost worker may leave. After the loss of a worker that had GPUs those are
    asked for; without one that is gone it goes on, or not, as `distribute.on_lost_device` says.

    Raises WorkerLost after the last, WorkerError for want of a device, and at once what the worker itself raised.
    """
    limit, restarts, reached = run.config.train.max_restarts, 0, newest_step() if newest_step else 0
    had_gpus = False

    def follow(report: dict[str, Any]) -> None:
        nonlocal had_gpus
        had_gpus = had_gpus or report.get("num_gpus", 0) > 0
        if on_progress is not None:
            on_progress(report)

    while True:
        try:
            return call_once(run, stage, function, arguments, together=together, on_progress=follow)
        except OutOfMemory as error:
            logger.warning("%s: %s", stage, error)  # each comes with fewer examples: there is an end to them
        except WorkerLost as error:
            step = newest_step() if newest_step else 0
            where = f"step {step}" if newest_step else "its start"
            smaller = without_lost_devices(run, error, where=where, log=_log(run, stage)) if had_gpus else None
            if smaller:
                run, restarts, reached = smaller, 0, step
                before_restart()
                continue  # that is no restart of train.max_restarts: devices are lost only so often as there are
            if step > reached:
                restarts, reached = 0, step
            if restarts == limit:
                since = f"restarts without a new checkpoint since step {reached}" if newest_step else "restarts"
                raise WorkerLost(
                    f"{error}; {since}: {restarts} of train.max_restarts={limit}; once the cause is gone, the same "
                    "command goes on"
                ) from error
            restarts += 1
            from_step = f", from step {step}" if newest_step else ""
            logger.warning("%s: %s; restart %d of %d%s", stage, error, restarts, limit, from_step)
            before_restart()


def call_once(
    run: Run,
    stage: str,
    function: str,
    arguments: dict[str, Any],
    *,
    together: bool = False,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Returns what `function` returned, as `call_for_run` does; raises WorkerLost at once."""
    distribute = run.config.distribute
    return launch.call(
        function,
        {"workspace": str(run.workspace), "run_id": run.id, **arguments},
        log=_log(run, stage),
        lock=run.worker_lock,
        environments=environments_of(distribute) if together else [{}],
        expendable=expendable_workers(distribute) if together else (),
        private_network=together and is_private(distribute),
        on_progress=on_progress,
        hang_timeout_seconds=distribute.hang_timeout_seconds,
        slow_phase_factor=distribute.slow_phase_factor,
    )


def _log(run: Run, stage: str) -> Path:
    return run.logs / f"{stage}.log"
