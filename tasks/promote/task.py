"""The register task: the door of this room and its policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.promote import register as room
from tasks.promote.record import RegisteredModel
from tasks.runs import Run


@task(name="register", cache_policy=NO_CACHE, persist_result=False)
def register(
    run: Run, mlflow_run_id: str, shards: Shards, report: EvalReport, exported: ExportManifest
) -> RegisteredModel:
    """Returns the version of the run's exported model in the MLflow registry."""
    return room.register(run, mlflow_run_id, shards, report, exported)
