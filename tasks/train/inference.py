"""Inference over a whole split: each example once, on all replicas."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tasks.feed.feed import Feed
from tasks.train.team import Team
from tasks.workers.child import progress, stop_if, stop_requested


class Predictions(NamedTuple):
    """One row an example, in storage order."""

    ids: np.ndarray
    """[n] int64, the examples' ids."""
    targets: np.ndarray
    """[n, ...], as `tasks.prepare.targets` has them."""
    outputs: np.ndarray
    """[n, num_outputs] of the model, in its own float type."""


class Predictor:
    """Runs a model over a feed; traced once, used after every epoch."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: keras.Model,
        feed: Feed,
        *,
        target: str,
        id: str,
        team: Team | None = None,
    ) -> None:
        """`feed` has this worker's part of the batches; each worker of the `team` gets the predictions of all."""
        self._target, self._id, self._team = target, id, team or Team(strategy)
        self._batches = strategy.distribute_datasets_from_function(lambda _: feed.one_pass())
        self._num_batches = feed.steps_per_epoch
        names = tuple(model.input)

        def replica(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            return model({name: batch[name] for name in names}, training=False)

        def run(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            return strategy.run(replica, args=(batch,))

        self._run = tf.function(run, autograph=False, reduce_retracing=True)

    def predict(self) -> Predictions:
        """Returns the predictions of the model as it is now; raises Stopped if a signal comes meanwhile."""
        ids, targets, outputs = [], [], []
        batches = iter(self._batches)
        for number in range(self._num_batches):
            # A large split is no hang; before the first batch the graph may have to be made.
            progress("predict" if number else "compile", batch=number, num_batches=self._num_batches)
            stop_if(self._team.any(stop_requested()))
            batch = next(batches)
            mask = self._team.rows(batch["mask"])
            ids.append(self._team.rows(batch[self._id])[mask])
            targets.append(self._team.rows(batch[self._target])[mask])
            outputs.append(self._team.rows(self._run(batch))[mask])
        return Predictions(np.concatenate(ids), np.concatenate(targets), np.concatenate(outputs))
