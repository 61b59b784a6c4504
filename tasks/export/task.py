"""The export task: the door of this room and its policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate.report import EvalReport
from tasks.export import stage
from tasks.export.manifest import ExportManifest
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.result import TrainResult


# No retries: it computes the same again; no time limit: a hang is noticed by missing progress.
@task(name="export", cache_policy=NO_CACHE, persist_result=False)
def export(run: Run, shards: Shards, trained: TrainResult, report: EvalReport) -> ExportManifest:
    """Returns the best checkpoint as a SavedModel, with `export.formats` beside it, reloaded and compared."""
    return stage.export(run, shards, trained, report)
