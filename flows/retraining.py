"""The retraining flow: new data to a model that takes the champion's place, if the gate accepts it."""

import logging

from prefect import flow
from prefect.states import Completed

from flows import summary
from flows.training import Outcome, pipeline, settle
from tasks.config import Config, DataConfig, FeedConfig, ModelConfig, PromoteConfig, TrackingConfig, TrainConfig
from tasks.distribution import Distribute, Mirrored
from tasks.download.task import download
from tasks.evaluation import EvaluateConfig
from tasks.files import Record
from tasks.formats import ExportConfig
from tasks.prepare.prepare import find_digest
from tasks.promote.occasion import Occasion, occasion

logger = logging.getLogger("millstream")


class Retraining(Record):
    """What a retraining has to show."""

    cause: str
    """Why it trained, or did not."""
    outcome: Outcome | None
    """None: it did not."""

    @property
    def line(self) -> str:
        """What came of it, in words."""
        decision = self.outcome.decision if self.outcome else None
        return decision.line if decision else f"skipped: {self.cause}"

    @property
    def is_rejected(self) -> bool:
        """Whether the gate kept the champion."""
        decision = self.outcome.decision if self.outcome else None
        return decision is not None and not decision.accepted


@flow(name="retraining", persist_result=False)
def retraining(
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
    force: bool = False,
    overrides: list[str] | None = None,
) -> Retraining:
    """New data to a tracked, registered model that is served if the gate accepts it; Completed at once without any.

    Args:
        name: Name of the data set, the experiment and the model.
        data: What the examples are and how they become shards; a change writes new shards.
        feed: How shards become global batches.
        model: Which Keras model is built.
        train: How long and by which rule the model learns.
        distribute: On which devices; changes no result.
        evaluate: On what the best checkpoint is judged, and the champion with it.
        export: In which formats the model is exported, and what each must prove.
        promote: How the exported model is registered, and what the gate asks of it.
        tracking: Where the MLflow run lives.
        force: Train though the data are the same.
        overrides: Fields of the groups above by dotted name, such as promote.gate.margin=0.01; they come last.
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
    config, workspace = settle(config, overrides)
    digest = find_digest(config.name, config.data, download(config, workspace).digest, workspace)
    found = Occasion(True, "it was asked for") if force else occasion(config, workspace, digest)
    logger.info("retraining: %s: %s", "begins" if found.is_one else "skipped", found.cause)
    outcome = pipeline(config, workspace, gated=True) if found.is_one else None
    if outcome is not None:
        summary.publish(outcome, name=name)  # last: by now everything is done and tracked
    done = Retraining(cause=found.cause, outcome=outcome)
    return Completed(message=done.line, data=done)  # type: ignore[return-value] # whose data the caller is given
