"""Runs as training and evaluation leave them, made by hand: exact figures, no training."""

from tasks import events
from tasks.evaluate.report import REPORT, ClassFigures, EvalReport
from tasks.files import atomic_directory
from tasks.runs import Run
from tasks.train.result import TrainResult
from tasks.train.stage import RESULT

STEPS_PER_EPOCH = 10


def log_epochs(run: Run, *, val_accuracy: list[float], examples_per_second: float = 1000.0) -> None:
    """Writes the events of an epoch for each value; val_loss is one less the accuracy."""
    for epoch, value in enumerate(val_accuracy, start=1):
        metrics = {"epoch": epoch, "loss": 1 / epoch, "val_accuracy": value, "val_loss": 1 - value}
        metrics |= {"perf/examples_per_second": examples_per_second}
        events.append(run.events, metrics, step=STEPS_PER_EPOCH * epoch)


def train_result(run: Run, *, num_replicas: int = 2) -> TrainResult:
    """Returns a result, and writes it as the train stage does."""
    result = TrainResult(
        best_checkpoint=run.checkpoints / "20",
        last_checkpoint=run.checkpoints / "30",
        best_step=20,
        best_value=0.9,
        num_steps=30,
        num_epochs=3,
        num_replicas=num_replicas,
        num_parameters=1234,
        devices=tuple(f"CPU:{index}" for index in range(num_replicas)),
        examples_per_second=1000.0,
        step_seconds_p50=0.01,
        step_seconds_p95=0.02,
        input_wait_fraction=0.1,
        input_wait_seconds_p50=0.001,
        input_wait_seconds_p95=0.003,
        resumed_from_step=0,
    )
    result.write(run.directory / RESULT)
    return result


def eval_report(run: Run, *, accuracy: float = 0.75) -> EvalReport:
    """Returns a report, and writes it as the evaluate stage does."""
    report = EvalReport(
        checkpoint=run.checkpoints / "20",
        split="test",
        num_examples=4,
        settings=run.config.evaluate,
        figures={"accuracy": accuracy, "loss": 0.5},
        headline="accuracy",
        classes=(ClassFigures(name="0", num_examples=4, precision=1.0, recall=0.75, f1=0.86),),
        directory=run.report,
    )
    with atomic_directory(run.report) as incomplete:
        report.write(incomplete / REPORT)
        (incomplete / "predictions.parquet").write_bytes(b"large")
    return report
