"""The evaluate task: the door of this room and its policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate import stage
from tasks.evaluate.report import EvalReport
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.result import TrainResult


# No retries: it computes the same again; no time limit: a hang is noticed by missing progress.
@task(name="evaluate", cache_policy=NO_CACHE, persist_result=False)
def evaluate(run: Run, shards: Shards, trained: TrainResult) -> EvalReport:
    """Returns the report of the run's best checkpoint on `config.evaluate.split`."""
    return stage.evaluate(run, shards, trained)
