"""The sweep: MLflow runs of ours that look as if they were running, and whose process died."""

import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import DataError
from tasks.files import lock
from tasks.runs import CHOOSE_LOCK, STATE, Run, is_free
from tasks.track.contents import HOST_TAG, RUN_ID_TAG, WORKSPACE_TAG
from tasks.track.sender import last_sign_ms

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_SECONDS = 10.0  # that another process may take to choose its run

logger = logging.getLogger("millstream")


def sweep(client: "MlflowClient", experiment_id: str, run: Run) -> None:
    """Ends as KILLED what a dead process of this host left RUNNING in an experiment, at its last sign of life.

    Left alone: `run` itself, runs of other hosts or not of ours, runs that are carried out or whose directory is gone.
    Raises what MLflow raises.
    """
    ours = f"attributes.status = 'RUNNING' and tags.`{HOST_TAG}` = '{socket.gethostname()}'"
    for found in client.search_runs([experiment_id], ours):
        tags = found.data.tags
        run_id, workspace = tags.get(RUN_ID_TAG), tags.get(WORKSPACE_TAG)
        if run_id is None or workspace is None or run_id == run.id:
            continue
        stale = Run(Path(workspace) / "runs" / run_id, run.config)
        try:
            if not (stale.directory / STATE).is_file():
                continue
            # Nobody can take it up while its end is written.
            with lock(stale.workspace / "runs" / CHOOSE_LOCK, timeout_seconds=LOCK_SECONDS):
                if not is_free(stale.directory):
                    continue
                client.set_terminated(found.info.run_id, "KILLED", end_time=last_sign_ms(stale))
        except (DataError, OSError) as error:
            logger.info("tracking: run %s is left as it is, RUNNING: %s", run_id, error)
        else:
            logger.info("tracking: run %s, whose process died, is KILLED", run_id)
