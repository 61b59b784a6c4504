"""Live: how far a training is, and at its end a table of its epochs, in the Prefect UI.

A thread beside the training, which never waits, reads the run's events, as the tracker does.
"""

import contextvars
import json
import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from flows.artifacts import artifact_key, create_artifact, update_artifact
from tasks import events
from tasks.prepare.manifest import Shards
from tasks.runs import Run

POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 3.0  # for one try; after the next epoch there is another
CLOSE_SECONDS = 5.0  # that the end of a training waits for what the last epoch gave
MAX_ROWS = 500  # of the table: the newest epochs

logger = logging.getLogger("millstream")


@contextmanager
def shown(run: Run, shards: Shards, *, page: Callable[[], str]) -> Iterator[None]:
    """Shows with the present flow run how far the run's training is while the block runs, 100 % once it ends well.

    `page`: link of the MLflow run, empty until it is known. A server that is gone, or slow, is told of once in the log.
    """
    closing, live = threading.Event(), _Live(run, shards, page)
    # Whose artifacts they are Prefect knows by its context.
    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(live.follow, closing), name="live", daemon=True
    )
    thread.start()
    try:
        yield
        live.is_done = True
    finally:
        closing.set()
        thread.join(CLOSE_SECONDS)


class _Live:
    """What Prefect was told of a training."""

    def __init__(self, run: Run, shards: Shards, page: Callable[[], str]) -> None:
        self.is_done = False
        self._run, self._num_examples, self._page = run, shards.num_examples["train"], page
        self._artifact: UUID | None = None
        self._shown_step, self._has_warned = 0.0, False

    def follow(self, closing: threading.Event) -> None:
        """Shows each epoch until the training is over, and then the table."""
        while not closing.wait(POLL_SECONDS):
            self._try(self._show_progress)
        self._try(self._show_progress)
        self._try(self._show_table)

    def _try(self, show: Callable[[], None]) -> None:
        try:
            show()
        except Exception as error:  # noqa: BLE001 - whatever becomes of it, the training goes on
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "prefect: the progress of run %s is not shown: %s; the training goes on", self._run.id, error
                )

    def _show_progress(self) -> None:
        rows = epoch_rows(events.history(self._run.events))
        if not rows or (rows[-1]["step"] == self._shown_step and not self.is_done):
            return
        last, train = rows[-1], self._run.config.train
        self._shown_step = last["step"]  # whatever becomes of it: the next try is after the next epoch
        total_steps = train.total.steps(
            num_examples=self._num_examples,
            global_batch_size=self._run.config.feed.global_batch_size,
            steps_per_epoch=round(last["step"] / last["epoch"]),
        )
        figures = ", ".join(
            f"{name} {last[name]:.4f}" for name in dict.fromkeys(("loss", "val_loss", train.best_metric))
        )
        link = f"; [MLflow run]({self._page()})" if self._page() else ""
        description = f"epoch {last['epoch']:g}, step {last['step']:g} of {total_steps}: {figures}{link}"
        progress = 100.0 if self.is_done else min(100.0, 100 * last["step"] / total_steps)
        if self._artifact is None:
            key = artifact_key(self._run.config.name, "progress")
            self._artifact = create_artifact(
                "progress", key, progress, description=description, max_tries=1, timeout_seconds=TIMEOUT_SECONDS
            )
        else:
            update_artifact(
                self._artifact, progress, description=description, max_tries=1, timeout_seconds=TIMEOUT_SECONDS
            )

    def _show_table(self) -> None:
        rows = epoch_rows(events.history(self._run.events))
        if rows:
            shown_rows = [{name: _cell(value) for name, value in row.items()} for row in rows[-MAX_ROWS:]]
            description = f"The last {len(shown_rows)} of {len(rows)} epochs of run {self._run.id}"
            key = artifact_key(self._run.config.name, "epochs")
            create_artifact(
                "table",
                key,
                json.dumps(shown_rows),
                description=description,
                max_tries=1,
                timeout_seconds=TIMEOUT_SECONDS,
            )


def epoch_rows(history: dict[str, dict[int, float]]) -> list[dict[str, float]]:
    """Returns epoch, step and the figures of each epoch of `events.history`."""
    return [
        {"epoch": epoch, "step": step, **{name: each[step] for name, each in history.items() if step in each}}
        for step, epoch in sorted(history.get("epoch", {}).items())
    ]


def _cell(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON knows no other numbers
