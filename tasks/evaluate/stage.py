"""The evaluate stage: a report that is there and whole, or a worker that makes one."""

import logging

from tasks.errors import DataError
from tasks.evaluate.report import REPORT, EvalReport
from tasks.files import is_whole, verify
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.result import TrainResult
from tasks.workers.restarts import call_for_run

logger = logging.getLogger("millstream")


def evaluate(run: Run, shards: Shards, trained: TrainResult) -> EvalReport:
    """Returns the report of the run's best checkpoint in report/ of the run, made unless it is there and whole.

    Raises DataError if the checkpoint is damaged, TrainingError if its model gives no numbers, WorkerLost if the
    worker was lost more than `train.max_restarts` times.
    """
    report = _existing(run, trained)
    if report is None:
        result = call_for_run(
            run,
            "evaluate",
            "tasks.evaluate.evaluation:evaluate",
            {"shards": shards.model_dump(mode="json"), "checkpoint": str(trained.best_checkpoint)},
        )
        report = EvalReport.model_validate(result)
    logger.info("evaluate: %s %s", report.split, report.line)
    if report.num_leaked:
        logger.warning(
            "evaluate: %d of %d %s examples have the very inputs of a training example, the first is example %d; the "
            "figures promise too much of what is new",
            report.num_leaked,
            report.num_examples,
            report.split,
            report.leaked[0],
        )
    return report


def find_report(run: Run) -> EvalReport:
    """Returns the report of a run; raises DataError if it was not evaluated, or a file of the report is damaged."""
    if not run.report.exists():
        raise DataError(f"run {run.id} was not evaluated; do so with `millstream evaluate` or `millstream run`")
    verify(run.report)
    return EvalReport.read(run.report / REPORT)


def _existing(run: Run, trained: TrainResult) -> EvalReport | None:
    if not run.report.exists() or not is_whole(run.report):
        return None
    report = EvalReport.read(run.report / REPORT)
    settings = run.config.evaluate.model_copy(update={"batch_size": report.settings.batch_size})  # changes no figure
    return report if (report.checkpoint, report.settings) == (trained.best_checkpoint, settings) else None
