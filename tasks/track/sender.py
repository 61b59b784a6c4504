"""The sender: brings the MLflow run of a pipeline run level with the run's directory."""

import logging
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from tasks.runs import STATE, Run
from tasks.track import client as mlflow_client
from tasks.track.contents import HOST_TAG, RUN_ID_TAG, WORKSPACE_TAG, Item, run_items, run_name
from tasks.track.points import has_new_points, read_points
from tasks.track.tracked import Tracked, read_tracked, write_tracked

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import RunInfo

MAX_METRICS_PER_CALL = 1000  # MLflow's limit
STATUS = "status"
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

logger = logging.getLogger("millstream")


class Sender:
    """Sends what the MLflow run lacks of the run's directory; what was sent, by whichever process, is not sent again.

    One at a time: the holder of the run's lock.
    """

    def __init__(self, run: Run) -> None:
        self.uri = mlflow_client.tracking_uri(run)
        self._run = run
        self._tracked = read_tracked(run)
        self._client: MlflowClient | None = None

    @property
    def client(self) -> "MlflowClient":
        assert self._client is not None, "connect first"
        return self._client

    @property
    def is_connected(self) -> bool:
        return self._client is not None

    @property
    def mlflow_run_id(self) -> str:
        return self._tracked.mlflow_run_id

    @property
    def experiment_id(self) -> str:
        return self._tracked.experiment_id

    def connect(self) -> None:
        """Finds or creates the MLflow run, the first time; raises what MLflow raises."""
        if self._client is not None:
            return
        client = mlflow_client.open_client(self.uri)
        experiment_id = mlflow_client.ensure_experiment(client, self._run)
        found = self._find(client, experiment_id) or self._create(client, experiment_id)
        place = {"mlflow_run_id": found.run_id, "experiment_id": found.experiment_id, "uri": self.address}
        # Of another MLflow run than before nothing was sent yet.
        before = self._tracked if found.run_id == self._tracked.mlflow_run_id else Tracked()
        # What became of it is the server's to say: whoever found it dead may have ended it.
        self._remember(before.model_copy(update={**place, "sent": {**before.sent, STATUS: found.status}}))
        if self._run.state().mlflow_run_id != found.run_id:
            self._run.update(mlflow_run_id=found.run_id)
        self._client = client

    @property
    def address(self) -> str:
        """The tracking server or database, for messages."""
        return mlflow_client.without_password(self.uri)

    def send(self, status: Status, *, ended_ms: int | None = None) -> Iterator[tuple[str, int]]:
        """Sends everything that there is; yields the name and number of each thing once MLflow has it.

        `ended_ms`: when the run ended, in ms since 1970; default: now. Raises what may go better later; what MLflow
        refuses is reported and left out.
        """
        self.connect()
        points, after = read_points(self._run.events, self._tracked)
        for start in range(0, len(points), MAX_METRICS_PER_CALL):
            some = points[start : start + MAX_METRICS_PER_CALL]
            self._try("metrics", partial(self.client.log_batch, self.mlflow_run_id, metrics=some))
        if after != self._tracked:
            self._remember(after)
            yield "metrics", len(points)
        for item in self._new_items(status, ended_ms):
            self._try(item.name, partial(item.send, self.client, self.mlflow_run_id))
            self._remember(self._tracked.model_copy(update={"sent": {**self._tracked.sent, item.name: item.stamp}}))
            yield item.name, 1

    def unsent(self, status: Status) -> list[str]:
        """Returns the names of what the MLflow run lacks; asks no server."""
        points = ["metrics"] if has_new_points(self._run.events, self._tracked) else []
        return [*points, *(item.name for item in self._new_items(status))]

    def _new_items(self, status: Status, ended_ms: int | None = None) -> Iterator[Item]:
        def set_status(client: "MlflowClient", mlflow_run_id: str) -> None:
            if status == "RUNNING":
                client.update_run(mlflow_run_id, status=status)
            else:
                client.set_terminated(mlflow_run_id, status, end_time=ended_ms)

        for item in (*run_items(self._run), Item(STATUS, status, set_status)):
            if self._tracked.sent.get(item.name) != item.stamp:
                yield item

    def _try(self, name: str, call: Callable[[], None]) -> None:
        """Raises if the call may go better later; what MLflow refuses is reported and left out."""
        try:
            call()
        except Exception as error:
            if mlflow_client.is_outage(error):
                raise
            logger.exception("tracking: %s of run %s left out", name, self._run.id)

    def _remember(self, tracked: Tracked) -> None:
        if tracked != self._tracked:
            write_tracked(self._run, tracked)
            self._tracked = tracked

    def _create(self, client: "MlflowClient", experiment_id: str) -> "RunInfo":
        created_ms = round(datetime.fromisoformat(self._run.state().created).timestamp() * 1000)
        # All by which a later run can tell that this one's process died.
        tags = {RUN_ID_TAG: self._run.id, HOST_TAG: socket.gethostname(), WORKSPACE_TAG: str(self._run.workspace)}
        return client.create_run(experiment_id, start_time=created_ms, run_name=run_name(self._run), tags=tags).info

    def _find(self, client: "MlflowClient", experiment_id: str) -> "RunInfo | None":
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


def told_status(run: Run) -> Status | None:
    """Returns the status that MLflow was last told of a run; None if it was never told one."""
    return cast("Status | None", read_tracked(run).sent.get(STATUS))


def last_sign_ms(run: Run) -> int:
    """Returns when a run last gave a sign of life, in ms since 1970: when it ended, if nobody is carrying it out."""
    files = (run.directory / STATE, run.events)
    return max(file.stat().st_mtime_ns for file in files if file.is_file()) // 1_000_000
