"""The sweep flow: many trainings of one config, one after the other, and the best of them as a config of its own."""

import logging
import math
from contextlib import ExitStack
from pathlib import Path

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE

from flows.study import Study, Trial, check_space, open_study, trial_config
from flows.training import run_tags, settle
from tasks import events
from tasks.config import (
    Config,
    DataConfig,
    FeedConfig,
    ModelConfig,
    PromoteConfig,
    TrackingConfig,
    TrainConfig,
    check_images,
    check_texts,
)
from tasks.distribution import Distribute, Mirrored
from tasks.download.task import download
from tasks.errors import ConfigError, OutOfMemory, RunError, Stopped, TrainingError
from tasks.evaluation import EvaluateConfig
from tasks.files import Record, lock, write_atomic
from tasks.formats import ExportConfig
from tasks.models.build import code_digest
from tasks.prepare.manifest import Shards
from tasks.prepare.task import prepare
from tasks.promote.warm_start import settle_warm_start
from tasks.runs import Run, open_run
from tasks.sweep import SweepConfig
from tasks.track.client import default_uri
from tasks.track.nested import PARENT_TAG, Entry, Parent, parent_run
from tasks.track.tracker import tracked
from tasks.train.stage import train
from tasks.workers import launch
from tasks.workers.cluster import refuse_stray_cluster
from tasks.workers.locks import held_devices

MLFLOW_RUN = "mlflow_run_id"  # file in the sweep's directory

logger = logging.getLogger("millstream")


class Swept(Record):
    """What a sweep has to show."""

    sweep_id: str
    metric: str
    trials: tuple[Trial, ...]
    best: Trial
    best_config: Path
    """`millstream run` takes it as it is, and goes on from the training of the best trial."""
    tracking_url: str


class _Pruned(Exception):
    """A trial is given up."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.reason)
        self.trial = trial


@flow(name="sweep", persist_result=False)
def sweep(
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
    sweep: SweepConfig | None = None,
    overrides: list[str] | None = None,
) -> Swept:
    """A search for better settings: each trial is a training; goes on where an interrupted sweep of the same stopped.

    Args:
        name: Name of the data set, the experiment and the model.
        data: What the examples are and how they become shards; a change writes new shards.
        feed: How shards become global batches.
        model: Which Keras model is built.
        train: How long and by which rule the model learns.
        distribute: On which devices; changes no result.
        evaluate: On what the best checkpoint is judged, once best.yaml is run.
        export: In which formats the model is exported then.
        promote: How the exported model is registered then.
        tracking: Where the MLflow runs live.
        sweep: Which fields are searched, and how many trials there are.
        overrides: Fields of the groups above by dotted name, such as sweep.num_trials=50; they come last.
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
        sweep=sweep,
    )
    return search(*settle(config, overrides))


def search(config: Config, workspace: Path) -> Swept:
    """Carries a sweep through all its trials, from where it stands; must be called within a Prefect flow.

    A trial whose settings do not fit together, whose training is not finite, or for which a device has too little
    memory, fails and the next one follows. Raises TrainingError if no trial came to its end, RunError if the same
    sweep is being carried out, TrackingError if MLflow does not answer at its start or end.
    """
    space = check_space(config)
    check_images(config)
    check_texts(config)
    refuse_stray_cluster()
    config = settle_warm_start(config, workspace)
    launch.warm_up()
    shards = prepare(config, download(config, workspace), workspace)
    code = code_digest(config.model, config.train.loss)
    study = open_study(workspace, config, space, data_digest=shards.data_digest, code_digest=code)
    with ExitStack() as held:
        try:
            held.enter_context(lock(study.directory / "lock", timeout_seconds=0))
        except TimeoutError:
            raise RunError(
                f"sweep {study.id} is being carried out by another process; wait for it, or stop it"
            ) from None
        return _carried_out(study, workspace, shards)


def _carried_out(study: Study, workspace: Path, shards: Shards) -> Swept:
    config, known = study.config, study.directory / MLFLOW_RUN
    space = {name: axis.model_dump_json(exclude_defaults=True) for name, axis in study.search.space.items()}
    with parent_run(
        config.tracking.uri or default_uri(workspace),
        workspace,
        config.tracking.experiment or config.name,
        Entry(f"{config.name}-sweep", {"sweep_id": study.id, **space}, {}),
        run_id=known.read_text() if known.is_file() else "",
    ) as parent:
        write_atomic(known, parent.run_id.encode())
        while (trial := study.next()) is not None:
            named = carry_out.with_options(task_run_name=f"trial-{trial.number}")
            done = named(study, trial, workspace, shards, parent)
            logger.info("sweep: trial %d of %d %s", done.number + 1, study.search.num_trials, _line(study, done))
        best, trials = study.best(), study.trials()
        if best is None or best.best is None:
            raise TrainingError(
                f"sweep {study.id}: none of its {len(trials)} trials came to its end, the last one because of this: "
                f"{trials[-1].reason}; correct sweep.space"
            )
        counts = {status: float(sum(trial.status == status for trial in trials)) for status in ("pruned", "failed")}
        figures = {f"best_{study.metric}": best.best, "best_trial": best.number, "num_trials": len(trials)}
        parent.log_result(figures | {f"num_{status}": count for status, count in counts.items()}, [study.best_config])
    return Swept(
        sweep_id=study.id,
        metric=study.metric,
        trials=tuple(trials),
        best=best,
        best_config=study.best_config,
        tracking_url=parent.url,
    )


@task(name="trial", cache_policy=NO_CACHE, persist_result=False)
def carry_out(study: Study, trial: Trial, workspace: Path, shards: Shards, parent: Parent) -> Trial:
    """Returns a trial that is over, its outcome written: it goes on from its last checkpoint if it was interrupted."""
    try:
        config = trial_config(study.config, trial.values)
    except ConfigError as error:
        done = trial.model_copy(update={"status": "failed", "reason": str(error)})
    else:
        done = _train(study, trial, config, workspace, shards, parent)
    study.write(done)
    return done


def _train(study: Study, trial: Trial, config: Config, workspace: Path, shards: Shards, parent: Parent) -> Trial:
    try:
        with open_run(
            workspace,
            config,
            data_digest=shards.data_digest,
            code_digest=code_digest(config.model, config.train.loss),
            flow_run_id=str(runtime.flow_run.id),
        ) as run:
            return _trained(study, trial.model_copy(update={"run_id": run.id}), run, shards, parent)
    except Stopped:
        raise  # it goes on
    except (TrainingError, OutOfMemory) as error:
        return trial.model_copy(update={"status": "failed", "reason": str(error)})


def _trained(study: Study, trial: Trial, run: Run, shards: Shards, parent: Parent) -> Trial:
    """Returns a trial with what its training came to: its end, or that it was given up."""
    judged = 0

    def judge() -> None:
        # Each epoch by itself, in order: what is given up must not depend on how soon its figures are seen here.
        nonlocal judged
        figures = _by_epoch(run, study.metric)
        for epoch in [each for each in figures if each > judged]:
            judged = epoch
            seen = trial.model_copy(update={"figures": {each: figures[each] for each in figures if each <= epoch}})
            if study.is_hopeless(seen):
                raise _Pruned(seen.model_copy(update={"status": "pruned", "reason": f"given up after epoch {epoch}"}))

    tags = {
        **run_tags(),
        PARENT_TAG: parent.run_id,
        "millstream.sweep": study.id,
        "millstream.trial": str(trial.number),
    }
    with tracked(run, tags=tags) as tracker, held_devices(run.config.distribute, run_id=run.id):
        try:
            trained = train(run, shards, on_note=judge)
            judge()  # the last epoch may have come too late
        except _Pruned as pruned:
            return pruned.trial
        tracker.log_training(trained)
        return trial.model_copy(
            update={"status": "completed", "best": trained.best_value, "figures": _by_epoch(run, study.metric)}
        )


def _by_epoch(run: Run, metric: str) -> dict[int, float]:
    """Returns {epoch: validation figure} of a run's whole epochs so far, in order, where it is finite."""
    history = events.history(run.events)
    epochs, figures = history.get("epoch", {}), history.get(metric, {})
    return {
        round(epoch): figures[step]
        for step, epoch in sorted(epochs.items())
        if epoch == round(epoch) and math.isfinite(figures.get(step, math.nan))
    }


def _line(study: Study, trial: Trial) -> str:
    values = ", ".join(f"{name}={value}" for name, value in trial.values.items())
    outcome = trial.reason or f"{study.metric} {trial.best:.6g}"
    return f"is {trial.status} ({values}): {outcome}"
