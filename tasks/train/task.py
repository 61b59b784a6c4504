"""The train task: the door of this room and its policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train import stage
from tasks.train.result import TrainResult


# No retries: a restart of training is the workers' affair, and no time limit: a hang is noticed by missing progress.
@task(name="train", cache_policy=NO_CACHE, persist_result=False)
def train(run: Run, shards: Shards) -> TrainResult:
    """Returns the result of the run's training."""
    return stage.train(run, shards)
