"""The training flow: one line a stage."""

from pathlib import Path

from prefect import flow, runtime

from tasks.config import (
    Config,
    DataConfig,
    Distribute,
    EvaluateConfig,
    ExportConfig,
    FeedConfig,
    Mirrored,
    ModelConfig,
    PromoteConfig,
    TrackingConfig,
    TrainConfig,
    build_config,
)
from tasks.download.task import download
from tasks.evaluate.report import EvalReport
from tasks.evaluate.task import evaluate
from tasks.export.manifest import ExportManifest
from tasks.export.task import export
from tasks.files import Record
from tasks.models.build import code_digest
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import data_digest
from tasks.prepare.task import prepare
from tasks.promote.record import RegisteredModel
from tasks.promote.task import register
from tasks.runs import open_run, workspace_of
from tasks.track.tracker import tracked
from tasks.train.result import TrainResult
from tasks.train.task import train
from tasks.workers import launch


class Outcome(Record):
    """What a finished run has to show."""

    run_id: str
    shards: Shards
    trained: TrainResult
    report: EvalReport
    exported: ExportManifest
    registered: RegisteredModel
    tracking_uri: str
    tracking_url: str


def pipeline(config: Config, workspace: Path, *, flow_run_id: str, run_id: str | None, fresh: bool) -> Outcome:
    """Carries a run through all its stages, from where it stands; must be called within a Prefect flow."""
    launch.warm_up()  # TensorFlow is imported while the data is still being sharded
    raw = download(config, workspace)
    with (
        open_run(
            workspace,
            config,
            data_digest=data_digest(config.name, config.data, raw),
            code_digest=code_digest(config.model),
            run_id=run_id,
            flow_run_id=flow_run_id,
            fresh=fresh,
        ) as run,
        tracked(run) as tracker,
    ):
        shards = prepare(config, raw, workspace)
        tracker.log_shards(shards)
        trained = train(run, shards)
        tracker.log_training(trained)
        report = evaluate(run, shards, trained)
        tracker.log_report(report)
        exported = export(run, shards, trained, report)
        registered = register(run, tracker.mlflow_run_id(), shards, report, exported)
        run.finish()
        return Outcome(
            run_id=run.id,
            shards=shards,
            trained=trained,
            report=report,
            exported=exported,
            registered=registered,
            tracking_uri=tracker.uri,
            tracking_url=tracker.url,
        )


@flow(name="training", persist_result=False)
def training(
    name: str,
    data: DataConfig = DataConfig(),
    feed: FeedConfig = FeedConfig(),
    model: ModelConfig = ModelConfig(),
    train: TrainConfig = TrainConfig(),
    distribute: Distribute = Mirrored(),
    evaluate: EvaluateConfig = EvaluateConfig(),
    export: ExportConfig = ExportConfig(),
    promote: PromoteConfig = PromoteConfig(),
    tracking: TrackingConfig = TrackingConfig(),
    run_id: str | None = None,
    fresh: bool = False,
    overrides: list[str] | None = None,
) -> Outcome:
    """Raw data to a tracked, registered model.

    The groups are those of a conf/*.yaml. `overrides` are dotted (`train.total=3 epochs`) and come last. Goes on where
    an interrupted run of the same config stopped; `run_id` names one, `fresh` begins anew.
    """
    config = Config(
        name=name,
        data=data,
        feed=feed,
        model=model,
        train=train,
        distribute=distribute,
        evaluate=evaluate,
        export=export,
        promote=promote,
        tracking=tracking,
    )
    return pipeline(
        build_config(config.model_dump(mode="json"), overrides or []),
        workspace_of(),
        flow_run_id=str(runtime.flow_run.id),
        run_id=run_id,
        fresh=fresh,
    )
