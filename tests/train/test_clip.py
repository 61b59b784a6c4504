"""Gradients are clipped once, by what the config says, after they are summed over the replicas."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.optimization import Clip
from tasks.train.update import clip_gradients

DENSE = ("model.build=models_for_tests:dense", "model.args={}", "train.precision=float64", "train.total=16 steps")
SGD = ("train.optimizer.name=sgd", "train.optimizer.learning_rate=0.5", "train.optimizer.schedule.kind=constant")
ORACLES = {
    "global_norm": lambda found, limit: [
        array * min(1, limit / np.sqrt(sum(np.sum(each**2) for each in found))) for array in found
    ],
    "variable_norm": lambda found, limit: [
        array * (min(1, limit / np.linalg.norm(array)) if array.any() else 1) for array in found
    ],
    "value": lambda found, limit: [np.clip(array, -limit, limit) for array in found],
}


@pytest.mark.parametrize("by", ORACLES)
@pytest.mark.parametrize("limit", [0.7, 3.0, 1e3])
def test_it_is_what_numpy_says(by, limit):
    draw = np.random.default_rng(1).normal
    gradients = [draw(size=(5, 3)), np.zeros(4), draw(size=7) / 10]
    clipped = clip_gradients([tf.constant(array) for array in gradients], Clip(by=by, limit=limit))
    for found, expected in zip(clipped, ORACLES[by](gradients, limit), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.prove
@pytest.mark.parametrize(("by", "limit"), [("variable_norm", 0.05), ("value", 0.003)])
def test_one_two_and_four_replicas_clip_the_same_gradient(trainer, by, limit):
    # 200 examples a batch: two of the steps are of a short one. Clipping by the global norm is in test_replicas.py.
    settings = (*DENSE, *SGD, "feed.global_batch_size=200", f"train.clip={{by: {by}, limit: {limit}}}")
    one, *others = (trainer.weights(*settings, f"distribute.num_replicas={count}") for count in (1, 2, 4))
    for other in others:
        assert max(float(np.abs(one[name] - other[name]).max()) for name in one) <= 1e-9


@pytest.mark.prove
@pytest.mark.parametrize(("by", "limit"), [("global_norm", 0.2), ("variable_norm", 0.05), ("value", 0.003)])
def test_a_step_of_two_replicas_is_the_one_that_numpy_computes(trainer, by, limit):
    settings = (*DENSE, *SGD, "train.optimizer.learning_rate=1", "distribute.num_replicas=2", "train.clip=null")
    start = trainer.weights(*settings, "train.total=1 steps", "train.optimizer.learning_rate=1.0e-300")
    free = trainer.weights(*settings, "train.total=1 steps")
    clipped = trainer.weights(*settings, "train.total=1 steps", f"train.clip={{by: {by}, limit: {limit}}}")
    names = [name for name in start if "float64" in name and "learning_rate" not in name]
    gradients = [start[name] - free[name] for name in names]
    expected = ORACLES[by](gradients, limit)
    assert any(np.abs(left - right).max() > 1e-3 for left, right in zip(gradients, expected, strict=True))
    for name, step in zip(names, expected, strict=True):
        np.testing.assert_allclose(start[name] - clipped[name], step, rtol=0, atol=1e-12)
