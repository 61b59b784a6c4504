"""Setup: everything that a training needs, made from the run's config and the shards."""

import os
from dataclasses import dataclass

import keras
import tensorflow as tf

from tasks.config import TrainConfig
from tasks.duration import Duration
from tasks.feed.advice import FeedFacts, feed_facts
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.preprocess import Preprocess
from tasks.models.build import build_model
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.ema import Ema
from tasks.train.inference import Predictions, Predictor
from tasks.train.loss import Loss, build_loss
from tasks.train.optimizer import build_optimizer
from tasks.train.schedule import learning_rate
from tasks.workers.devices import open_strategy


@dataclass(frozen=True)
class Setup:
    """The parts of one training; durations are resolved to steps."""

    strategy: tf.distribute.Strategy
    feed: Feed
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    loss: Loss
    ema: Ema
    validation: Predictor
    input_facts: FeedFacts
    target: str
    total_steps: int
    checkpoint_every: int

    @property
    def variables(self) -> list[keras.Variable]:
        """All that a checkpoint holds: weights, statistics and seeds of the model, its averages, the optimizer's."""
        return [*self.model.variables, *self.ema.variables, *self.optimizer.variables]

    def validate(self) -> Predictions:
        """Returns the predictions of the weights that are evaluated; raises Stopped if a signal comes meanwhile."""
        with self.ema.in_place():
            return self.validation.predict()


def set_up(run: Run, shards: Shards) -> Setup:
    """Returns the parts of a run's training; raises ConfigError if the config does not fit data or machine.

    It configures the process's devices: call it once, before any other TensorFlow operation.
    """
    config, manifest = run.config, shards.manifest()
    strategy = open_strategy(config.distribute)
    num_replicas = strategy.num_replicas_in_sync
    set_precision_and_seeds(config.train)
    feed = Feed(shards.directory, manifest, "train", config.feed, seed=config.train.seed, num_replicas=num_replicas)

    def steps(duration: Duration) -> int:
        return duration.steps(
            num_examples=feed.num_examples,
            global_batch_size=feed.global_batch_size,
            steps_per_epoch=feed.steps_per_epoch,
        )

    total_steps = steps(config.train.total)
    preprocess = Preprocess(manifest, config.feed)
    with strategy.scope():
        model = build_model(config.model, preprocess.inputs, len(manifest.label_map), preprocess.num_values)
        rate = learning_rate(
            config.train.optimizer, total_steps=total_steps, global_batch_size=feed.global_batch_size, steps=steps
        )
        optimizer = build_optimizer(config.train.optimizer, model.trainable_variables, rate)
        ema = Ema(model.variables, config.train.ema)
    validation = evaluation_feed(
        shards.directory,
        manifest,
        "validation",
        config.feed,
        batch_size=config.evaluate.batch_size,
        num_replicas=num_replicas,
    )
    return Setup(
        strategy=strategy,
        feed=feed,
        model=model,
        optimizer=optimizer,
        ema=ema,
        loss=build_loss(config.train, manifest.label_map, manifest.splits["train"].class_counts),
        validation=Predictor(strategy, model, validation, target=manifest.target, id=manifest.id),
        input_facts=feed_facts(manifest, config.feed, cache=feed.plan.cache, cores=len(os.sched_getaffinity(0))),
        target=manifest.target,
        total_steps=total_steps,
        checkpoint_every=steps(config.train.checkpoint_every),
    )


def set_precision_and_seeds(config: TrainConfig) -> None:
    """Sets this process's float type, seeds and choice of kernels; call it before a model is built."""
    keras.config.set_floatx(config.precision)
    keras.config.set_dtype_policy(config.precision)
    keras.utils.set_random_seed(config.seed)
    if config.deterministic:
        tf.config.experimental.enable_op_determinism()
