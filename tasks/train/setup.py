"""Setup: everything that a training needs, made from the run's config and the shards."""

import logging
import os
from dataclasses import dataclass

import keras
import tensorflow as tf

from tasks.config import Config, TrainConfig
from tasks.distribution import Distribute
from tasks.duration import Duration
from tasks.errors import ConfigError
from tasks.feed.advice import FeedFacts, feed_facts
from tasks.feed.columns import check_columns
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.preprocess import Preprocess
from tasks.models.build import build_model, check_invariance
from tasks.models.layers import takes_batch_statistics
from tasks.models.placement import build_placed
from tasks.models.recompute import recompute
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.runs import Run
from tasks.starting_weights import FileWeights
from tasks.train.checkpoint import Position, newest_position
from tasks.train.ema import Ema
from tasks.train.head import Head, make_head
from tasks.train.inference import Predictions, Predictor
from tasks.train.loss import Loss, class_weights, own_loss
from tasks.train.loss_scale import LossScale
from tasks.train.microbatch import microbatch_of
from tasks.train.optimizer import build_optimizer
from tasks.train.precision import AUTO_PRECISIONS, resolve_precision, set_precision
from tasks.train.reduction import Sum, make_sum
from tasks.train.schedule import learning_rate
from tasks.train.team import Team
from tasks.train.warm_start import warm_start
from tasks.train.xla import check_xla
from tasks.workers.child import progress
from tasks.workers.cluster import led_workers
from tasks.workers.devices import compute_capabilities, open_strategy

logger = logging.getLogger("millstream")


@dataclass(frozen=True)
class Setup:
    """The parts of one training; durations are resolved to steps."""

    strategy: tf.distribute.Strategy
    """Of what this process runs itself."""
    coordinator: tf.distribute.coordinator.ClusterCoordinator | None
    """Of the workers of a parameter server, if there is one."""
    team: Team
    sum: Sum
    feed: Feed
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    head: Head
    loss: Loss
    """Of the head, or the user's own."""
    ema: Ema
    validation: Predictor
    input_facts: FeedFacts
    target: str
    total_steps: int
    checkpoint_every: int
    precision: str
    """What `train.precision` came to."""
    loss_scale: LossScale | None
    """In mixed_float16 only."""
    statistics_rows: int | None
    """As in a Position."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that take batches, of all workers."""
        if self.coordinator is not None:
            return led_workers()
        return self.team.devices(self.strategy.extended.worker_devices)

    @property
    def variables(self) -> list[keras.Variable]:
        """All that a checkpoint holds.

        Weights, statistics and seeds of the model, its averages, what the optimizer keeps, the loss scale.
        """
        scale = self.loss_scale.variables if self.loss_scale else []
        return [*self.model.variables, *self.ema.variables, *self.optimizer.variables, *scale]

    def validate(self) -> Predictions:
        """Returns the predictions of the weights that are evaluated; raises Stopped if a signal comes meanwhile."""
        with self.ema.in_place():
            return self.validation.predict()


def set_up(run: Run, shards: Shards, *, microbatch: int | None = None) -> Setup:
    """Returns the parts of a run's training; raises ConfigError if the config does not fit data or machine.

    `microbatch` is instead of what the run says; for a trial.

    It configures the process's devices: call it once, before any other TensorFlow operation.
    """
    config, manifest = run.config, shards.manifest()
    check_columns(manifest, config.evaluate.slices)  # not after hours of training
    strategy = placing = open_strategy(config.distribute)
    coordinator = None
    if isinstance(placing, tf.distribute.ParameterServerStrategy):
        coordinator = tf.distribute.coordinator.ClusterCoordinator(placing)
        strategy = tf.distribute.get_strategy()
    team, num_replicas = Team(strategy), strategy.num_replicas_in_sync
    precision = _precision(run, strategy, team)
    set_precision_and_seeds(config.train, precision)
    feed = Feed(
        shards.directory,
        manifest,
        "train",
        config.feed,
        seed=config.train.seed,
        num_replicas=num_replicas,
        num_workers=team.num_workers,
        worker=team.worker,
        microbatch=microbatch or microbatch_of(run),
    )

    def steps(duration: Duration) -> int:
        return duration.steps(
            num_examples=feed.num_examples,
            global_batch_size=feed.global_batch_size,
            steps_per_epoch=feed.steps_per_epoch,
        )

    total_steps = steps(config.train.total)
    with placing.scope():
        model = build(config, manifest, config.distribute)
        check_invariance(model, config.train.invariance)
        check_xla(model, config.train, num_replicas=num_replicas)
        recompute(model, config.train.recompute)
        if isinstance(config.model.warm_start, FileWeights) and newest_position(run.checkpoints) is None:
            progress("note", line=warm_start(model, config.model.warm_start))
        rate = learning_rate(
            config.train.optimizer, total_steps=total_steps, global_batch_size=feed.global_batch_size, steps=steps
        )
        optimizer = build_optimizer(config.train.optimizer, model.trainable_variables, rate)
        ema = Ema(model.variables, config.train.ema)
        loss_scale = LossScale() if precision == "mixed_float16" else None
    validation = evaluation_feed(
        shards.directory,
        manifest,
        "validation",
        config.feed,
        batch_size=config.evaluate.batch_size,
        num_replicas=num_replicas,
        num_workers=team.num_workers,
        worker=team.worker,
    )
    progress("note", line=feed.plan.line())
    head = make_head(config, manifest)
    return Setup(
        strategy=strategy,
        coordinator=coordinator,
        team=team,
        sum=make_sum(config.distribute),
        feed=feed,
        model=model,
        optimizer=optimizer,
        ema=ema,
        head=head,
        loss=_loss(run, manifest, head),
        validation=Predictor(strategy, model, validation, target=manifest.target, id=manifest.id, team=team),
        input_facts=feed_facts(manifest, config.feed, cache=feed.plan.cache, cores=len(os.sched_getaffinity(0))),
        target=manifest.target,
        total_steps=total_steps,
        checkpoint_every=steps(config.train.checkpoint_every),
        precision=precision,
        loss_scale=loss_scale,
        statistics_rows=feed.rows_at_once if feed.num_microbatches > 1 and takes_batch_statistics(model) else None,
    )


def build(config: Config, manifest: ShardManifest, distribute: Distribute) -> keras.Model:
    """Returns the model of a config for the data of a manifest, on the devices of `distribute`, whose strategy's scope
    it is called in.
    """
    preprocess = Preprocess(manifest, config.feed)
    return build_placed(
        distribute, lambda: build_model(config.model, preprocess.inputs, manifest.num_outputs, preprocess.num_values)
    )


def _loss(run: Run, manifest: ShardManifest, head: Head) -> Loss:
    train = run.config.train
    if not train.has_own_loss:
        return head.loss
    weights = class_weights(train, manifest.label_map, manifest.splits["train"].class_counts)
    own = own_loss(train.loss, run.config.model.folder, weights)
    return lambda targets, outputs: own(head.as_learned(targets, outputs.dtype), outputs)


def check_statistics(setup: Setup, position: Position, *, allowed: bool) -> None:
    """Raises ConfigError if the training would go on with batch statistics over another number of examples, unless that
    is `allowed`.

    Says, at the start of a training, that they are not those of the whole global batch.
    """
    now, whole = setup.statistics_rows, setup.feed.global_batch_size
    if position.step == 0 and now is not None:
        logger.warning(
            "train.microbatch: the model normalises over the %d examples that %d replica(s) take at once, not over the "
            "%d of a global batch, so that the weights are not those of a training without microbatches",
            now,
            setup.strategy.num_replicas_in_sync,
            whole,
        )
    if position.step and position.statistics_rows != now:
        before, replicas = position.statistics_rows, setup.strategy.num_replicas_in_sync
        if before is None:
            same = "train.microbatch=null"
        elif before % replicas:
            same = f"a number of replicas that divides {before}"
        else:
            same = f"train.microbatch={before // replicas}"
        changed = (
            f"train.microbatch: the model normalises over the examples that are taken at once, {now or whole} of a "
            f"global batch on {replicas} replica(s), and until step {position.step} it did over {before or whole}, "
            "which gives other weights"
        )
        if not allowed:
            raise ConfigError(f"{changed}; go on with {same}, or begin a new run with --fresh")
        logger.warning("%s, as train.allow_bn_change=true allows", changed)


def set_precision_and_seeds(config: TrainConfig, precision: str) -> None:
    """Sets this process's float types, seeds and choice of kernels; call it before a model is built."""
    set_precision(precision)
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()


def _precision(run: Run, strategy: tf.distribute.Strategy, team: Team) -> str:
    requested = run.config.train.precision
    if requested != "auto":
        return requested
    position, capabilities = newest_position(run.checkpoints), compute_capabilities(strategy)
    if position is not None and position.precision:
        progress("note", line=f"train.precision: goes on in {position.precision}, in which the training was begun")
        return position.precision
    # Workers whose GPUs differ have to agree, or their sums would not fit together.
    precision = AUTO_PRECISIONS[team.of_chief(AUTO_PRECISIONS.index(resolve_precision(requested, capabilities)))]
    shown = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
    where = f"GPUs of compute capability {shown}" if capabilities else "a CPU"
    progress("note", line=f"train.precision: auto is {precision} on {where}")
    return precision
