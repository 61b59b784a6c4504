"""Parity sides: some steps of ours and of Keras's fit, compared after each with those on fewest replicas."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tasks.bench.side_setup import set_up_side
from tasks.config import Config
from tasks.errors import TrainingError
from tasks.feed.feed import Feed
from tasks.models.layers import StatelessDropout, SyncBatchNorm
from tasks.prepare.manifest import Shards
from tasks.train.batches import batches_of
from tasks.train.clock import in_graph_clock
from tasks.train.setup import Setup
from tasks.train.step import make_run_steps
from tasks.workers.child import progress

CLIPS = {"global_norm": "global_clipnorm", "variable_norm": "clipnorm", "value": "clipvalue"}

Worst = tuple[str, float | None]  # the variable that differs most, and by how much; None: not finite


def ours(config: dict[str, Any], shards: dict[str, Any], folder: str, num_steps: int) -> dict[str, Any]:
    """Returns `worst`, the Worst after each step, as JSON; the first one called with a folder leaves its steps there.

    Raises TrainingError if a loss or gradient is not finite.
    """
    setup, resolved = set_up_side(config, shards, folder)
    run_steps = make_run_steps(setup, resolved.train, clock=in_graph_clock(deterministic=resolved.train.deterministic))
    batches = batches_of(setup.strategy, setup.feed.training(0))
    compare = _comparison(Path(folder))
    compare(_arrays(setup.variables))
    worst = []
    progress("compile")
    for step in range(1, num_steps + 1):
        outcomes = run_steps(batches, tf.constant(1))
        if not bool(outcomes.healthy.numpy().all()):
            raise TrainingError(f"loss or gradient of step {step} is not finite, so that there is nothing to compare")
        worst.append(compare(_arrays(setup.variables)))
        progress("step", step=step, total=num_steps)
    return {"worst": worst}


def fit(config: dict[str, Any], shards: dict[str, Any], folder: str, num_steps: int) -> dict[str, Any]:
    """Returns the same of Keras's fit, with Keras's own layers and clipping, or in `failed` what it raised."""
    setup, resolved = set_up_side(config, shards, folder)
    batches = list(_global_batches(setup, resolved, Shards.model_validate(shards), num_steps))
    if "mix_label" in batches[0]:
        return {"failed": "fit has no loss for examples that feed.augment blends"}
    inputs = {name: [batch[name] for batch in batches] for name in setup.model.input}
    labels = [batch[setup.target] for batch in batches]
    compare = _comparison(Path(folder))
    try:
        model = _compiled(setup, resolved, target_rank=labels[0].ndim)
        compare(_arrays(model.weights))
        recorder = _Recorder(compare)
        model.fit(_dataset(inputs, labels), steps_per_epoch=num_steps, shuffle=False, verbose=0, callbacks=[recorder])
    except Exception as error:  # noqa: BLE001 - whatever it is, that is the figure of this side
        lines = str(error).strip().splitlines() or [""]
        return {"failed": f"{type(error).__name__}: {lines[0]}"}
    return {"worst": recorder.worst}


class _Recorder(keras.callbacks.Callback):
    """Compares the model's weights after each batch."""

    def __init__(self, compare: Callable[[dict[str, np.ndarray]], Worst]) -> None:
        super().__init__()
        self.worst: list[Worst] = []
        self._compare = compare

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.worst.append(self._compare(_arrays(self.model.weights)))
        progress("step", step=len(self.worst))


def _comparison(folder: Path) -> Callable[[dict[str, np.ndarray]], Worst]:
    """Returns a function of what is there after each step, first before any, which says how far that is from what lies
    in the folder; into an empty one it writes.
    """
    is_first, calls = not any(folder.glob("*.safetensors")), iter(range(10**9))

    def compare(arrays: dict[str, np.ndarray]) -> Worst:
        file = folder / f"{next(calls):06d}.safetensors"
        if is_first:
            save_file(arrays, file)
            return "", 0.0
        others = load_file(file)
        assert others.keys() == arrays.keys(), "the same model, whatever the number of replicas"
        apart = {name: _difference(array, others[name]) for name, array in arrays.items()}
        name = max(apart, key=lambda name: apart[name])
        return name.partition(" ")[2], apart[name] if np.isfinite(apart[name]) else None

    return compare


def _arrays(variables: Sequence[keras.Variable]) -> dict[str, np.ndarray]:
    """Returns the values of variables, at least one-dimensional, by number and path."""
    values = [np.ascontiguousarray(variable.value) for variable in variables]
    return {f"{i} {variable.path}": value for i, (variable, value) in enumerate(zip(variables, values, strict=True))}


def _difference(left: np.ndarray, right: np.ndarray) -> float:
    if not np.issubdtype(left.dtype, np.floating):
        return float(np.any(left != right))
    apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return float(np.where(np.isfinite(apart), apart, np.inf).max(initial=0.0))


def _global_batches(setup: Setup, config: Config, shards: Shards, num_steps: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields the global batches of the first steps, without padding."""
    feed = Feed(shards.directory, shards.manifest(), "train", config.feed, seed=config.train.seed, num_replicas=1)
    for batch in feed.training(0).take(num_steps).as_numpy_iterator():
        mask = batch["mask"]
        yield {name: column[mask] for name, column in batch.items() if np.shape(column)[:1] == mask.shape}


def _dataset(inputs: dict[str, list[np.ndarray]], labels: list[np.ndarray]) -> tf.data.Dataset:
    def batches() -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        for number, label in enumerate(labels):
            yield {name: columns[number] for name, columns in inputs.items()}, label

    def spec(column: np.ndarray) -> tf.TensorSpec:
        return tf.TensorSpec([None, *column.shape[1:]], column.dtype)

    signature = ({name: spec(columns[0]) for name, columns in inputs.items()}, spec(labels[0]))
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def _compiled(setup: Setup, config: Config, *, target_rank: int) -> keras.Model:
    """Returns the model with Keras's own layers in the place of ours, ready for fit."""

    def stock(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, StatelessDropout):
            return keras.layers.Dropout(layer.rate, name=layer.name, seed=config.train.seed)
        if isinstance(layer, SyncBatchNorm):
            return keras.layers.BatchNormalization(momentum=layer.momentum, epsilon=layer.epsilon, name=layer.name)
        return type(layer).from_config(layer.get_config())

    def loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        # Keras gives numbers of one dimension a second.
        targets = tf.reshape(labels, [-1]) if target_rank == 1 else labels
        return setup.loss(targets, tf.cast(logits, keras.config.floatx()))

    rate, clip = setup.optimizer._learning_rate, config.train.clip
    if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        rate = float(setup.optimizer.learning_rate)
    clipping = {} if clip is None else {CLIPS[clip.by]: clip.limit}
    with setup.strategy.scope():
        model = keras.models.clone_model(setup.model, clone_function=stock, recursive=True)
        model.set_weights(setup.model.get_weights())
        optimizer = type(setup.optimizer)(learning_rate=rate, **config.train.optimizer.args, **clipping)
        model.compile(optimizer, loss)
    return model
