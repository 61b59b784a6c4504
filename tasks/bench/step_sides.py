"""Step sides: our loop and its rivals on the same model and the same ready batch; each in a process of its own."""

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tasks import events
from tasks.bench.runner import OURS, Cost
from tasks.bench.step_case import CHECKPOINT_STEPS, StepCase
from tasks.config import TrackingConfig
from tasks.feed.feed import Feed
from tasks.feed.preprocess import Preprocess
from tasks.models.build import build_model
from tasks.runs import Run, open_run
from tasks.track.tracker import tracked
from tasks.train.batches import batches_of
from tasks.train.checkpoint import Position, Writer, completed
from tasks.train.clock import in_graph_clock
from tasks.train.nonfinite import weights_are_finite
from tasks.train.setup import Setup, set_up
from tasks.train.step import make_run_steps
from tasks.train.timing import Timing
from tasks.workers.devices import open_strategy

tf.get_logger().setLevel(logging.ERROR)  # AutoGraph warns of each `match`, which it leaves as it is, as it should

Turn = Callable[[int], object]  # takes so many steps

LOGGED_SECONDS = 5
LOGGED = tuple(f"metric_{number}" for number in range(20))  # about as many as an epoch has


def mlp(inputs: dict[str, keras.KerasTensor], num_classes: int) -> keras.Model:
    """Returns a model of so few operations that a step is nearly all cost of the loop."""
    x = keras.layers.Dense(32, activation="relu")(keras.layers.Rescaling(1 / 255)(inputs["image"]))
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))


def cnn(inputs: dict[str, keras.KerasTensor], num_classes: int) -> keras.Model:
    """Returns a model of 32x32 images whose step is nearly all computation."""
    x = keras.layers.Reshape((32, 32, 3))(keras.layers.Rescaling(1 / 255)(inputs["image"]))
    for filters in (32, 64, 128):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = keras.layers.MaxPooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(num_classes)(keras.layers.Flatten()(x)))


def turn(side: str, file: Path) -> Cost:
    """Returns what it costs one side to take the steps of a case.

    It is measured here, because a process that has called fit may not be idle for seconds.
    """
    case, take = StepCase.read(file), _turn_of(side, file.parent)
    return _cost_of(lambda: take(case.num_steps))


def checkpoint_turn(file: Path) -> Cost:
    """Returns what a checkpoint, written beside CHECKPOINT_STEPS of our loop, adds to what they cost."""
    take, setup = _turn_of(OURS, file.parent), _setup_of(file.parent, deterministic=True)
    directory = file.parent / "checkpoints"
    step = 1 + max((int(saved.name) for saved in completed(directory)), default=0)

    def take_and_write() -> None:
        with Writer(directory, keep=1) as writer:
            assert weights_are_finite(setup)
            writer.save(setup.variables, Position(step=step), replaces_older=True)
            take(CHECKPOINT_STEPS)

    alone, beside = _cost_of(lambda: take(CHECKPOINT_STEPS)), _cost_of(take_and_write)
    return Cost(*(more - less for more, less in zip(beside, alone, strict=True)))


def logging_turn(file: Path) -> Cost:
    """Returns what it adds to a step of our loop that once a second a point of each metric is logged and sent.

    In time what the steps take longer for it: the tracker is in this process, where both hinder each other more than in
    a run, which has two. In CPU-seconds what as many points cost while no step is taken, since of the difference of two
    turns not much more is left than their noise.
    """
    folder, take = file.parent, _turn_of(OURS, file.parent)
    steps = _steps_in_a_second(take, StepCase.read(file).num_steps)
    tracking = TrackingConfig(uri=f"sqlite:///{folder / 'mlflow.db'}")
    config = _case_of(folder).config.model_copy(update={"tracking": tracking})
    alone = _cost_of(lambda: [take(steps) for _ in range(LOGGED_SECONDS)])
    with open_run(folder, config, data_digest="", code_digest="", fresh=True) as run, tracked(run) as tracker:
        tracker.mlflow_run_id()  # what is done once, and an import of seconds, is done

        def log_beside(work: Callable[[], object]) -> None:
            for second in range(LOGGED_SECONDS):
                work()
                events.append(run.events, dict.fromkeys(LOGGED, float(second)), step=second)

        logged = _cost_of(lambda: log_beside(lambda: take(steps)))
        logging_alone = _cost_of(lambda: log_beside(lambda: time.sleep(1)))
    return Cost(
        cpu_seconds=logging_alone.cpu_seconds / (LOGGED_SECONDS * steps),
        wall_seconds=(logged.wall_seconds - alone.wall_seconds) / (LOGGED_SECONDS * steps),
    )


def _steps_in_a_second(take: Turn, few: int) -> int:
    """Returns about how many steps are taken in a second, of which `few` may be taken at once."""
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < LOGGED_SECONDS:
        take(few)
        steps += few
    return max(1, steps // LOGGED_SECONDS)


def _cost_of(work: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(cpu_seconds=time.process_time() - cpu, wall_seconds=time.perf_counter() - wall)


@lru_cache(maxsize=1)  # built once in a process, which has one strategy and knows one case's folder
def _turn_of(side: str, folder: Path) -> Turn:
    case = _case_of(folder)
    makers = {"fit": _fit, "hand_loop": _hand_loop, "tf_function": _tf_function}
    if side in makers:
        return makers[side](case)
    return _ours(folder, deterministic=side == OURS)


def _case_of(folder: Path) -> StepCase:
    return StepCase.read(next(folder.glob("*.json")))  # those of a folder differ in the number of steps alone


@lru_cache(maxsize=1)
def _setup_of(folder: Path, *, deterministic: bool) -> Setup:
    case = _case_of(folder)
    train = case.config.train.model_copy(update={"deterministic": deterministic})
    run = Run(folder / "run", case.config.model_copy(update={"train": train}))
    return set_up(run, case.as_shards())


def _ours(folder: Path, *, deterministic: bool) -> Turn:
    """Returns a turn of the trainer's own loop, in calls of as many steps as it takes at a time."""
    setup = _setup_of(folder, deterministic=deterministic)
    config = _case_of(folder).config.train
    run_steps = make_run_steps(setup, config, clock=in_graph_clock(deterministic=deterministic))
    ready = setup.feed.training(0).take(setup.strategy.num_replicas_in_sync).cache().repeat()
    iterator = batches_of(setup.strategy, ready)
    timing = Timing(0)

    def take(num_steps: int) -> None:
        for start in range(0, num_steps, config.steps_per_call):
            call = min(config.steps_per_call, num_steps - start)
            timing.add(run_steps(iterator, tf.constant(call, tf.int32)))

    return take


def _fit(case: StepCase) -> Turn:
    """Returns a turn that is one call of Keras's fit."""
    strategy, ready, model, optimizer = _parts(case)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with strategy.scope():
        model.compile(optimizer, loss, metrics=["accuracy"])
    whole = tf.data.Dataset.from_tensors(next(iter(ready.batch(strategy.num_replicas_in_sync)))).map(_joined).repeat()
    return lambda num_steps: model.fit(whole, steps_per_epoch=num_steps, shuffle=False, verbose=0)


def _hand_loop(case: StepCase) -> Turn:
    """Returns a turn that is one call of a loop in a graph, as short as one would write it."""
    strategy, ready, model, optimizer = _parts(case)
    step = _step(strategy, model, optimizer)
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: ready.repeat()))

    @tf.function(reduce_retracing=True)
    def loop(iterator: tf.data.Iterator, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        loss, num_correct = tf.constant(0.0), tf.constant(0.0)
        for _ in tf.range(num_steps):
            more = step(next(iterator))
            loss, num_correct = loss + more[0], num_correct + more[1]
        return loss, num_correct

    return lambda num_steps: [value.numpy() for value in loop(iterator, tf.constant(num_steps))]


def _tf_function(case: StepCase) -> Turn:
    """Returns a turn that calls the graph of one step from the host, as TensorFlow's guide to custom training does."""
    strategy, ready, model, optimizer = _parts(case)
    step = tf.function(_step(strategy, model, optimizer))
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: ready.repeat()))

    def take(num_steps: int) -> tuple[float, float]:
        loss = num_correct = 0.0
        for _ in range(num_steps):
            more = step(next(iterator))
            loss, num_correct = loss + more[0], num_correct + more[1]
        return float(loss), float(num_correct)

    return take


def _parts(case: StepCase) -> tuple[tf.distribute.Strategy, tf.data.Dataset, keras.Model, keras.optimizers.Optimizer]:
    """Returns strategy, the replicas' (image, label) of one global batch, and a new model with its optimizer."""
    strategy, manifest = open_strategy(case.config.distribute), case.manifest()
    keras.utils.set_random_seed(case.config.train.seed)
    preprocess = Preprocess(manifest, case.config.feed)
    replicas = strategy.num_replicas_in_sync
    feed = Feed(case.shards, manifest, "train", case.config.feed, seed=0, num_replicas=replicas)
    ready = feed.training(0).take(replicas).map(lambda batch: (batch["image"], batch[manifest.target])).cache()
    with strategy.scope():
        model = build_model(case.config.model, preprocess.inputs, len(manifest.label_map), {})
        optimizer = keras.optimizers.SGD(case.config.train.optimizer.learning_rate, **case.config.train.optimizer.args)
        optimizer.build(model.trainable_variables)
    return strategy, ready, model, optimizer


def _step(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Callable[[Any], tuple[tf.Tensor, tf.Tensor]]:
    """Returns step(batch), which gives the loss and the number correct of the global batch."""

    def replica(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows = label.shape[0] * strategy.num_replicas_in_sync
        with tf.GradientTape() as tape:
            logits = model({"image": image}, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(label, logits, from_logits=True)
            loss = tf.reduce_sum(losses) / rows
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)  # Keras sums them over the replicas
        return loss, tf.reduce_sum(keras.metrics.sparse_categorical_accuracy(label, logits))

    def step(batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        loss, num_correct = strategy.run(replica, args=batch)
        return strategy.reduce("SUM", loss, axis=None), strategy.reduce("SUM", num_correct, axis=None)

    return step


def _joined(image: tf.Tensor, label: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the replicas' rows as one global batch: [replicas, b, ...] as [replicas * b, ...]."""
    return {"image": tf.reshape(image, [-1, *image.shape[2:]])}, tf.reshape(label, [-1])
