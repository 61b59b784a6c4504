"""The tracker: a thread that keeps one MLflow run level with a pipeline run."""

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tasks import events
from tasks.errors import TrackingError
from tasks.evaluate.report import EvalReport
from tasks.prepare.manifest import MANIFEST, QUARANTINE, Shards
from tasks.runs import Run
from tasks.track import client as mlflow_client
from tasks.track.params import compare, flatten
from tasks.track.points import Points
from tasks.track.provenance import provenance_tags, requirements
from tasks.train.result import TrainResult

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import RunInfo

MAX_METRICS_PER_CALL = 1000  # MLflow's limits
MAX_PARAMS_PER_CALL = 100
MAX_DIGEST_LENGTH = 36
RUN_ID_TAG = "millstream.run_id"
SECONDS_BETWEEN_CALLS = 1.0
MAX_SECONDS_BETWEEN_TRIES = 30.0
KILLED_FLUSH_SECONDS = 5.0  # whoever interrupts a run does not want to wait; Prefect kills after 30 s

Status = Literal["FINISHED", "FAILED", "KILLED"]
_Change = Callable[["MlflowClient", str], None]  # called with the client and the MLflow run id; may be repeated

logger = logging.getLogger("millstream")


@contextmanager
def tracked(run: Run, *, tags: Mapping[str, str] | None = None, flush_seconds: float = 30) -> Iterator["Tracker"]:
    """Yields the tracker of a run; its MLflow run ends as the block ends: FINISHED, FAILED or KILLED (an interrupt).

    Everything that talks to MLflow, its import included, happens in a thread. No answer from the server disturbs the
    block or raises: the thread tries again and again, at the end for `flush_seconds` more, then a warning says what is
    missing. A run that has an MLflow run goes on in it. `tags` are added to the MLflow run.
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
    """Sends what the run's events gain, and what `log_*` is told; none of these waits for MLflow."""

    def __init__(self, run: Run, tags: Mapping[str, str]) -> None:
        """Starts the thread; use `tracked`."""
        self.uri = mlflow_client.tracking_uri(run)
        self.url = ""
        """Link of the run in the MLflow UI; empty until the server answered."""
        self._run, self._tags = run, dict(tags)
        self._client: MlflowClient | None = None
        self._mlflow_run_id = ""
        self._points: Points | None = None
        self._changes: deque[tuple[str, _Change]] = deque()
        self._connected, self._closing, self._given_up = threading.Event(), threading.Event(), threading.Event()
        self._last_error = "it has not answered yet"
        self._log("tags", self._send_tags)
        self._log_params(flatten(run.config.model_dump(mode="json")))
        self._log_file(run.directory / "config.yaml")
        self._log("requirements", lambda client, to: client.log_text(to, requirements(), "requirements.txt"))
        self._thread = threading.Thread(target=self._work, name="tracker", daemon=True)
        self._thread.start()

    def mlflow_run_id(self, timeout_seconds: float = 60) -> str:
        """Returns the id of the MLflow run, after a wait for the server; raises TrackingError if it does not answer."""
        if not self._connected.wait(timeout_seconds):
            raise TrackingError(
                f"run {self._run.id}: {mlflow_client.without_password(self.uri)} has not answered for "
                f"{timeout_seconds:g} s ({self._last_error}); start it or correct tracking.uri, then give the same "
                "command again: it goes on from here"
            )
        return self._mlflow_run_id

    def log_shards(self, shards: Shards) -> None:
        """Logs the shards: a dataset input of the run, its manifest, and its counts as data/*."""
        counts = {"num_shards": shards.num_shards, "num_bad": shards.num_bad}
        counts |= {f"num_examples_{split}": number for split, number in shards.num_examples.items()}
        events.append(self._run.events, {f"data/{name}": value for name, value in counts.items()}, step=0)

        def send(client: "MlflowClient", mlflow_run_id: str) -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            dataset = Dataset(
                name=self._run.config.name,
                digest=shards.data_digest[:MAX_DIGEST_LENGTH],
                source_type="local",
                source=json.dumps({"uri": str(shards.directory)}),
                profile=json.dumps(counts),
            )
            client.log_inputs(mlflow_run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])

        self._log("dataset", send)
        self._log_file(shards.directory / MANIFEST, folder="data")
        if shards.num_bad:
            self._log_file(shards.directory / QUARANTINE, folder="data")

    def log_training(self, trained: TrainResult) -> None:
        """Logs the outcome of a training; its curves and perf/* come from the run's events, which it wrote itself."""
        config = self._run.config
        best = {"best_step": trained.best_step, f"best_{config.train.best_metric}": trained.best_value}
        events.append(self._run.events, best, step=trained.num_steps)
        self._log_params({"num_replicas": str(trained.num_replicas), "num_parameters": str(trained.num_parameters)})
        per_replica_batch_size = -(-config.feed.global_batch_size // trained.num_replicas)
        name = f"{self._short_name()}-{trained.num_replicas}x{per_replica_batch_size}"
        self._log("name", lambda client, mlflow_run_id: client.update_run(mlflow_run_id, name=name))

    def log_report(self, report: EvalReport) -> None:
        """Logs the figures as eval/*, and the report and its plots; the predictions stay where they are."""
        figures = {"accuracy": report.accuracy, "loss": report.loss, "num_examples": report.num_examples}
        # By the step of what was evaluated: a run that went on longer is evaluated once more.
        step = int(report.checkpoint.name)
        events.append(self._run.events, {f"eval/{name}": value for name, value in figures.items()}, step=step)
        for file in sorted(report.directory.iterdir()):
            if file.suffix in {".json", ".png"}:
                self._log_file(file, folder="report")

    def close(self, status: Status, flush_seconds: float) -> None:
        """Ends the MLflow run and the thread; warns if not all could be sent in `flush_seconds`."""
        self._log("status", lambda client, mlflow_run_id: client.set_terminated(mlflow_run_id, status))
        self._closing.set()
        self._thread.join(flush_seconds)
        if self._thread.is_alive():
            self._given_up.set()
            logger.warning(
                "tracking: %s did not take all of run %s (%s); not sent: %s; every metric is in %s",
                mlflow_client.without_password(self.uri),
                self._run.id,
                self._last_error,
                ", ".join(dict.fromkeys(name for name, _ in tuple(self._changes))),
                self._run.events,
            )

    def _log_params(self, params: dict[str, str]) -> None:
        def send(client: "MlflowClient", mlflow_run_id: str) -> None:
            from mlflow.entities import Param, RunTag

            new, changed = compare(params, client.get_run(mlflow_run_id).data.params)
            entries = [*(Param(*item) for item in new.items()), *(RunTag(*item) for item in changed.items())]
            for start in range(0, len(entries), MAX_PARAMS_PER_CALL):
                some = entries[start : start + MAX_PARAMS_PER_CALL]
                client.log_batch(
                    mlflow_run_id,
                    params=[entry for entry in some if isinstance(entry, Param)],
                    tags=[entry for entry in some if isinstance(entry, RunTag)],
                )

        self._log("params", send)

    def _log_file(self, file: Path, *, folder: str | None = None) -> None:
        self._log(file.name, lambda client, mlflow_run_id: client.log_artifact(mlflow_run_id, str(file), folder))

    def _log(self, name: str, change: _Change) -> None:
        self._changes.append((name, change))

    def _short_name(self) -> str:
        return f"{self._run.config.name}-{self._run.state().key[:6]}"

    def _work(self) -> None:
        """Sends until all is sent and the tracker is closed."""
        failures = 0
        while not self._given_up.is_set():
            closing = self._closing.is_set()  # asked first: what was logged before is then sent below
            try:
                self._send()
            except Exception as error:  # of MLflow and all below it; tried again
                failures += 1
                self._last_error = str(error).partition("\n")[0]
                if failures == 1:
                    logger.warning(
                        "tracking: nothing can be sent to %s (%s); the run goes on, and all is kept and tried again",
                        mlflow_client.without_password(self.uri),
                        self._last_error,
                        exc_info=not mlflow_client.is_outage(error),
                    )
            else:
                if failures:
                    logger.info("tracking: %s takes what is sent again", mlflow_client.without_password(self.uri))
                failures = 0
                if closing:
                    return
            seconds = min(SECONDS_BETWEEN_CALLS * 2**failures, MAX_SECONDS_BETWEEN_TRIES)
            (self._given_up if closing else self._closing).wait(SECONDS_BETWEEN_CALLS if closing else seconds)

    def _send(self) -> None:
        """Sends everything that there is; raises what may go better later."""
        client, points = self._connect()
        metrics = points.read()
        for start in range(0, len(metrics), MAX_METRICS_PER_CALL):
            some = metrics[start : start + MAX_METRICS_PER_CALL]
            self._try("metrics", partial(client.log_batch, self._mlflow_run_id, metrics=some))
        points.commit()
        while self._changes:
            name, change = self._changes[0]
            self._try(name, partial(change, client, self._mlflow_run_id))
            self._changes.popleft()

    def _try(self, name: str, call: Callable[[], None]) -> None:
        """Raises if the call may go better later; what MLflow refuses is reported and left out."""
        try:
            call()
        except Exception as error:
            if mlflow_client.is_outage(error):
                raise
            logger.exception("tracking: %s of run %s left out", name, self._run.id)

    def _connect(self) -> tuple["MlflowClient", Points]:
        """Returns the client and the points that the MLflow run lacks; finds or creates the run the first time."""
        if self._client is None or self._points is None:
            client = mlflow_client.open_client(self.uri)
            experiment_id = mlflow_client.ensure_experiment(client, self._run)
            found = self._find_mlflow_run(client, experiment_id)
            if found is None:
                tags = {RUN_ID_TAG: self._run.id}
                found = client.create_run(experiment_id, run_name=self._short_name(), tags=tags).info
            else:
                client.update_run(found.run_id, status="RUNNING")
            self._run.update(mlflow_run_id=found.run_id)
            self._mlflow_run_id = found.run_id
            self.url = mlflow_client.run_url(self.uri, found.experiment_id, found.run_id)
            self._client, self._points = client, Points(self._run, found.run_id)
            self._connected.set()
        return self._client, self._points

    def _find_mlflow_run(self, client: "MlflowClient", experiment_id: str) -> "RunInfo | None":
        from mlflow.exceptions import MlflowException

        mlflow_run_id = self._run.state().mlflow_run_id
        if not mlflow_run_id:
            # A kill may have come after the MLflow run was created and before its id was written down.
            ours = client.search_runs([experiment_id], f"tags.`{RUN_ID_TAG}` = '{self._run.id}'", max_results=1)
            return ours[0].info if ours else None
        try:
            info = client.get_run(mlflow_run_id).info
        except MlflowException as error:
            if mlflow_client.is_outage(error):
                raise
            logger.warning("tracking: MLflow run %s is gone (%s); a new one takes its place", mlflow_run_id, error)
            return None
        return info if info.lifecycle_stage == "active" else None

    def _send_tags(self, client: "MlflowClient", mlflow_run_id: str) -> None:
        from mlflow.entities import RunTag

        state = self._run.state()
        tags = {
            RUN_ID_TAG: state.id,
            "millstream.key": state.key,
            "millstream.data_digest": state.data_digest,
            "mlflow.source.name": "millstream",
            **provenance_tags(Path(self._run.config.model.folder or ".")),
            **({"prefect.flow_run_id": state.prefect_flow_run_ids[-1]} if state.prefect_flow_run_ids else {}),
            **self._tags,
        }
        client.log_batch(mlflow_run_id, tags=[RunTag(*item) for item in tags.items()])
