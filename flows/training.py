"""The training flow: one line a stage."""

from pathlib import Path

from prefect import flow, runtime

from flows import live, prefect_logs, summary
from tasks.config import (
    Config,
    DataConfig,
    FeedConfig,
    ModelConfig,
    PromoteConfig,
    TrackingConfig,
    TrainConfig,
    build_config,
    check_images,
    check_texts,
)
from tasks.distribution import Distribute, Mirrored
from tasks.download.task import download
from tasks.errors import DataError
from tasks.evaluate.report import EvalReport
from tasks.evaluate.task import evaluate
from tasks.evaluation import EvaluateConfig
from tasks.export.manifest import ExportManifest
from tasks.export.task import export
from tasks.files import Record
from tasks.formats import ExportConfig, check_formats
from tasks.models.build import code_digest
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import find_digest
from tasks.prepare.task import prepare
from tasks.promote.record import Decision, RegisteredModel
from tasks.promote.task import challenge, drift, register
from tasks.promote.warm_start import settle_warm_start
from tasks.runs import open_run, workspace_of
from tasks.track.tracker import tracked
from tasks.train.result import TrainResult
from tasks.train.task import train
from tasks.workers import launch
from tasks.workers.cluster import refuse_stray_cluster
from tasks.workers.locks import held_devices


class Outcome(Record):
    """What a finished run has to show."""

    run_id: str
    shards: Shards
    trained: TrainResult
    report: EvalReport
    exported: ExportManifest
    registered: RegisteredModel | None
    """None of a reproduction: it is no new model."""
    decision: Decision | None
    """Of the gate; None if the model was not held against the champion."""
    tracking_uri: str
    tracking_url: str


def pipeline(
    config: Config,
    workspace: Path,
    *,
    run_id: str | None = None,
    fresh: bool = False,
    gated: bool = False,
    reproduces: str = "",
) -> Outcome:
    """Carries a run through all its stages, from where it stands; must be called within a Prefect flow.

    With `gated` its model is then held against the champion, and takes its place if the gate accepts it. `reproduces`:
    the id of the run that it repeats.
    """
    check_images(config)
    check_texts(config)
    check_formats(config.export)
    refuse_stray_cluster()
    config = settle_warm_start(config, workspace)
    launch.warm_up()  # TensorFlow is imported while the data is still being sharded
    raw = download(config, workspace)
    data_digest = find_digest(config.name, config.data, raw.digest, workspace)
    with open_run(
        workspace,
        config,
        data_digest=data_digest,
        code_digest=code_digest(config.model, config.train.loss),
        run_id=run_id,
        flow_run_id=str(runtime.flow_run.id),
        fresh=fresh,
        reproduces=reproduces,
    ) as run:
        with tracked(run, tags=run_tags()) as tracker:
            shards = prepare(config, raw, workspace)
            if shards.data_digest != data_digest:
                raise DataError(
                    f"{shards.directory}: another process appended to these shards since this run began with "
                    f"{data_digest}; give the command again, which begins a run of what is there now"
                )
            tracker.log_shards(shards)
            if gated and (drifted := drift(run, shards)) is not None:
                tracker.log_drift(drifted)
            with held_devices(config.distribute, run_id=run.id):
                with live.shown(run, shards, page=lambda: tracker.url):
                    trained = train(run, shards)
                tracker.log_training(trained)
                report = evaluate(run, shards, trained)
                tracker.log_report(report)
                exported = export(run, shards, trained, report)
                tracker.log_export(exported)
            registered = decision = None
            if not run.state().reproduces:  # one that `millstream resume` goes on with stays one
                registered = register(run, tracker.mlflow_run_id(), shards, report, exported)
            if gated and registered is not None:
                with held_devices(config.distribute, run_id=run.id):
                    decision = challenge(run, shards, report, exported, registered)
                tracker.log_decision(decision, step=exported.step)
        run.finish()  # once all is tracked: a finished run is never taken up again
    return Outcome(
        run_id=run.id,
        shards=shards,
        trained=trained,
        report=report,
        exported=exported,
        registered=registered,
        decision=decision,
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
    """Raw data to a tracked, registered model; goes on where an interrupted run of the same config stopped.

    Args:
        name: Name of the data set, the experiment and the model.
        data: What the examples are and how they become shards; a change writes new shards.
        feed: How shards become global batches.
        model: Which Keras model is built.
        train: How long and by which rule the model learns.
        distribute: On which devices; changes no result.
        evaluate: On what the best checkpoint is judged.
        export: In which formats the model is exported, and what each must prove.
        promote: How the exported model is registered.
        tracking: Where the MLflow run lives.
        run_id: Id of the run to go on with; default: the newest interrupted one of this config, else a new one.
        fresh: Begin a new run even if one of the same config was interrupted.
        overrides: Fields of the groups above by dotted name, such as train.total=3 epochs; they come last.
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
    outcome = pipeline(*settle(config, overrides), run_id=run_id, fresh=fresh)
    summary.publish(outcome, name=name)  # last: by now everything is done and tracked
    return outcome


def settle(config: Config, overrides: list[str] | None) -> tuple[Config, Path]:
    """Returns the config with its overrides, and the workspace, of the present flow run; its log is Prefect's too."""
    deployed = bool(runtime.deployment.id)
    if deployed:
        prefect_logs.follow()
    return build_config(config.model_dump(mode="json"), overrides or []), workspace_of(deployed=deployed)


def run_tags() -> dict[str, str]:
    """Returns what leads from the MLflow run to this Prefect flow run."""
    url, flow_run = runtime.flow_run.ui_url, runtime.flow_run.name
    tags = {"prefect.flow_run_name": flow_run}
    if runtime.deployment.name:
        tags["prefect.deployment"] = runtime.deployment.name
    if url:
        tags["prefect.flow_run_url"] = url
        tags["mlflow.note.content"] = f"Prefect flow run [{flow_run}]({url})"
    return tags
