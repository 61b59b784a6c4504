"""The drift, register and gate tasks: the doors of this room and their policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate.report import EvalReport
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.promote import register as room
from tasks.promote.challenge import challenge as challenge_champion
from tasks.promote.drift import measure
from tasks.promote.record import Decision, Drift, RegisteredModel
from tasks.runs import Run


@task(name="drift", cache_policy=NO_CACHE, persist_result=False)
def drift(run: Run, shards: Shards) -> Drift | None:
    """Returns how far the run's training data are from the champion's; None if that cannot be told."""
    return measure(run, shards)


@task(name="register", cache_policy=NO_CACHE, persist_result=False)
def register(
    run: Run, mlflow_run_id: str, shards: Shards, report: EvalReport, exported: ExportManifest
) -> RegisteredModel:
    """Returns the version of the run's exported model in the MLflow registry."""
    return room.register(run, mlflow_run_id, shards, report, exported)


@task(name="gate", cache_policy=NO_CACHE, persist_result=False)
def challenge(
    run: Run, shards: Shards, report: EvalReport, exported: ExportManifest, challenger: RegisteredModel
) -> Decision:
    """Returns what the gate says of the run's registered model; one that is accepted is promoted."""
    return challenge_champion(run, shards, report, exported, challenger)
