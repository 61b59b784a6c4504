"""The reproduction flow: a run carried out once more, and held against the first."""

from pathlib import Path

from prefect import flow

from flows.training import pipeline
from tasks.promote.reproduction import Plan, Reproduction, compare_with_first
from tasks.runs import find_run


@flow(name="reproduction", persist_result=False)
def reproduction(plan: Plan, workspace: Path) -> Reproduction:
    """Returns what came of a run that is carried out once more; goes on where an interrupted reproduction stopped.

    Args:
        plan: The run, and what of it has changed since.
        workspace: Where it is carried out: the shards that are there are taken.
    """
    outcome = pipeline(plan.config, workspace, reproduces=plan.recorded.run_id)
    return compare_with_first(plan, find_run(workspace, outcome.run_id), outcome.trained, url=outcome.tracking_url)
