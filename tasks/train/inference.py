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
    labels: np.ndarray
    """[n] int64."""
    logits: np.ndarray
    """[n, num_classes], in the model's own float type."""

    def figures(self) -> dict[str, float]:
        """Returns accuracy, and loss: the mean cross-entropy in nats, summed in float64."""
        logits = self.logits.astype(np.float64)
        log_sums = np.logaddexp.reduce(logits, axis=1)
        losses = log_sums - np.take_along_axis(logits, self.labels[:, None], axis=1)[:, 0]
        return {"accuracy": float(np.mean(logits.argmax(axis=1) == self.labels)), "loss": float(losses.mean())}


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

        self._run = tf.function(lambda batch: strategy.run(replica, args=(batch,)), reduce_retracing=True)

    def predict(self) -> Predictions:
        """Returns the predictions of the model as it is now; raises Stopped if a signal comes meanwhile."""
        ids, labels, logits = [], [], []
        batches = iter(self._batches)
        for number in range(self._num_batches):
            # A large split is no hang; before the first batch the graph may have to be made.
            progress("predict" if number else "compile", batch=number, num_batches=self._num_batches)
            stop_if(self._team.any(stop_requested()))
            batch = next(batches)
            mask = self._team.rows(batch["mask"])
            ids.append(self._team.rows(batch[self._id])[mask])
            labels.append(self._team.rows(batch[self._target])[mask])
            logits.append(self._team.rows(self._run(batch))[mask])
        return Predictions(np.concatenate(ids), np.concatenate(labels), np.concatenate(logits))
