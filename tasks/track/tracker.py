"""The tracker: a thread that keeps one MLflow run level with a pipeline run."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tasks import events
from tasks.errors import TrackingError
from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.promote.record import Decision, Drift
from tasks.runs import Run
from tasks.track import client as mlflow_client
from tasks.track.provenance import write_provenance
from tasks.track.sender import Sender, Status
from tasks.track.sweep import sweep
from tasks.train.result import TrainResult

SECONDS_BETWEEN_CALLS = 1.0
MAX_SECONDS_BETWEEN_TRIES = 30.0
KILLED_FLUSH_SECONDS = 5.0  # whoever interrupts a run does not want to wait; Prefect kills after 30 s

logger = logging.getLogger("millstream")


@contextmanager
def tracked(run: Run, *, tags: Mapping[str, str] | None = None, flush_seconds: float = 30) -> Iterator["Tracker"]:
    """Yields the tracker of a run; its MLflow run ends as the block ends: FINISHED, FAILED or KILLED (an interrupt).

    Everything that talks to MLflow, its import included, happens in a thread. No answer from the server disturbs the
    block or raises: the thread tries again and again, at the end for `flush_seconds` more, then a warning says what is
    missing and how to send it. A run that has an MLflow run goes on in it. `tags` are added to the MLflow run.
    """
    tracker = Tracker(run, tags or {})
    try:
        yield tracker
    except Exception:
        tracker.close("FAILED", flush_seconds)
        raise
    except BaseException:  # KeyboardInterrupt, SystemExit, Prefect's TerminationSignal
        tracker.close("KILLED", min(flush_seconds, KILLED_FLUSH_SECONDS))
        raise
    tracker.close("FINISHED", flush_seconds)


class Tracker:
    """Sends what the run's directory gains; what is logged is written there first, and nothing waits for MLflow."""

    def __init__(self, run: Run, tags: Mapping[str, str]) -> None:
        """Starts the thread; use `tracked`."""
        self.url = ""
        """Link of the run in the MLflow UI; empty until the server answered."""
        self._run = run
        write_provenance(run, tags)
        self._sender = Sender(run)
        self.uri = self._sender.address
        self._status: Status = "RUNNING"
        self._connected, self._closing, self._given_up = threading.Event(), threading.Event(), threading.Event()
        self._swept = False
        self._last_error = "it has not answered yet"
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def mlflow_run_id(self, timeout_seconds: float = 60) -> str:
        """Returns the id of the MLflow run, after a wait for the server; raises TrackingError if it does not answer."""
        if not self._connected.wait(timeout_seconds):
            raise TrackingError(
                f"run {self._run.id}: {self._sender.address} has not answered for {timeout_seconds:g} s "
                f"({self._last_error}); start it or correct tracking.uri, then give the same command again: it goes on "
                "from here"
            )
        return self._sender.mlflow_run_id

    def log_shards(self, shards: Shards) -> None:
        """Logs the counts of the shards as data/*; the data set and its manifest are found where they lie."""
        counts = {"num_shards": shards.num_shards, "num_bad": shards.num_bad}
        counts |= {f"num_examples_{split}": number for split, number in shards.num_examples.items()}
        self._log("data", counts, step=0)

    def log_drift(self, drift: Drift) -> None:
        """Logs the drift of each feature as drift/*; the record and its plot are found where they lie."""
        self._log("drift", drift.metrics, step=0)

    def log_training(self, trained: TrainResult) -> None:
        """Logs the best step; the curves and perf/* come from the run's events, which the training wrote itself."""
        best = {"best_step": trained.best_step, f"best_{self._run.config.train.best_metric}": trained.best_value}
        events.append(self._run.events, best, step=trained.num_steps)

    def log_report(self, report: EvalReport) -> None:
        """Logs the figures as eval/*; the report and its plots are found where they lie."""
        # By the step of what was evaluated: a run that went on longer is evaluated once more.
        self._log("eval", report.metrics, step=int(report.checkpoint.name))

    def log_export(self, exported: ExportManifest) -> None:
        """Logs size, latency and largest difference of the exported model as export/*."""
        figures = {"size_bytes": exported.size_bytes, "largest_difference": exported.largest_difference}
        for latency in exported.latencies:
            figures |= {
                f"latency_p50_ms_batch_{latency.batch_size}": latency.p50_ms,
                f"latency_p95_ms_batch_{latency.batch_size}": latency.p95_ms,
            }
        self._log("export", figures, step=exported.step)

    def log_decision(self, decision: Decision, *, step: int) -> None:
        """Logs the champion's figures on the same examples as champion/*; gate.json is found where it lies."""
        if decision.p_value is not None:
            self._log("champion", {**decision.champion_figures, "p_value": decision.p_value}, step=step)

    def close(self, status: Status, flush_seconds: float) -> None:
        """Ends the MLflow run and the thread; warns if not all could be sent in `flush_seconds`."""
        self._status = status
        self._closing.set()
        self._thread.join(flush_seconds)
        if self._thread.is_alive():
            self._given_up.set()
            logger.warning(
                "tracking: %s did not take all of run %s (%s); not sent: %s; all of it is in %s, and "
                "`millstream sync %s` sends it",
                self._sender.address,
                self._run.id,
                self._last_error,
                ", ".join(self._sender.unsent(status)),
                self._run.directory,
                self._run.id,
            )

    def _log(self, group: str, figures: Mapping[str, float], *, step: int) -> None:
        events.append(self._run.events, {f"{group}/{name}": value for name, value in figures.items()}, step=step)

    def _work(self) -> None:
        """Sends until all is sent and the tracker is closed."""
        failures = 0
        while not self._given_up.is_set():
            closing = self._closing.is_set()  # asked first: what was logged before is then sent below
            try:
                self._sender.connect()
                self._announce()
                for _ in self._sender.send(self._status if closing else "RUNNING"):
                    pass
                self._sweep()
            except Exception as error:  # of MLflow and all below it; tried again
                failures += 1
                self._last_error = mlflow_client.first_line(error)
                if failures == 1:
                    logger.warning(
                        "tracking: nothing can be sent to %s (%s); the run goes on, and all is kept and tried again",
                        self._sender.address,
                        self._last_error,
                        exc_info=not mlflow_client.is_outage(error),
                    )
            else:
                if failures:
                    logger.info("tracking: %s takes what is sent again", self._sender.address)
                failures = 0
                if closing:
                    return
            seconds = min(SECONDS_BETWEEN_CALLS * 2**failures, MAX_SECONDS_BETWEEN_TRIES)
            (self._given_up if closing else self._closing).wait(SECONDS_BETWEEN_CALLS if closing else seconds)

    def _announce(self) -> None:
        if not self._connected.is_set():
            sender = self._sender
            self.url = mlflow_client.run_url(sender.uri, sender.experiment_id, sender.mlflow_run_id)
            self._connected.set()

    def _sweep(self) -> None:
        if not self._swept:
            self._swept = True  # tried once: what is left over is for the next run
            sweep(self._sender.client, self._sender.experiment_id, self._run)
