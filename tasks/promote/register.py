"""The register stage: a worker puts the exported model into the MLflow registry."""

import logging

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.promote.record import RegisteredModel
from tasks.runs import Run
from tasks.workers import launch

logger = logging.getLogger("millstream")


def register(
    run: Run, mlflow_run_id: str, shards: Shards, report: EvalReport, exported: ExportManifest
) -> RegisteredModel:
    """Returns the version of the run's exported model in the registry, made unless it is there.

    The version holds the SavedModel itself, with signature, input example and pinned requirements, and loads with
    `mlflow.pyfunc.load_model(uri)`. Raises TrackingError if MLflow does not answer.
    """
    result = launch.call(
        "tasks.promote.registration:register",
        {
            "workspace": str(run.workspace),
            "run_id": run.id,
            "mlflow_run_id": mlflow_run_id,
            "shards": shards.model_dump(mode="json"),
            "report": report.model_dump(mode="json"),
            "exported": exported.model_dump(mode="json"),
        },
        log=run.logs / "register.log",
        hang_timeout_seconds=run.config.distribute.hang_timeout_seconds,
        # The model's requirements are pinned by us; a uv.lock in the user's folder is of another project.
        environments=[{"MLFLOW_UV_AUTO_DETECT": "false"}],
    )
    registered = RegisteredModel.model_validate(result)
    logger.info("register: %s", registered.uri)
    return registered
