"""A model whose layers lie on several devices trains as on one."""

import numpy as np
import pytest

from tasks.errors import ConfigError

EXACT = (
    "train.precision=float64",
    "train.total=20 steps",
    "train.optimizer.schedule.kind=constant",
    "train.clip.limit=0.5",
    "feed.global_batch_size=200",
)


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def test_layers_on_two_devices_in_one_group_or_two_match_one_device(trainer):
    one = trainer.weights(*EXACT, "distribute.kind=one_device")
    place = "distribute.place={dense: 1}"
    assert largest_difference(one, trainer.weights(*EXACT, "distribute.kind=model_parallel", place)) <= 1e-9
    assert largest_difference(one, trainer.weights(*EXACT, "distribute.kind=hybrid", place)) <= 1e-9


def test_weights_and_what_the_optimizer_keeps_of_them_lie_beside_their_layer(trainer):
    run = trainer.run("distribute.kind=hybrid", "distribute.place={dense: 1}")
    found = trainer.call("train_functions:devices_of_variables", run)
    assert found["dense/kernel"] == ["CPU:1", "CPU:3"]
    assert found["conv2d/kernel"] == ["CPU:0", "CPU:2"]
    (momentum,) = (devices for name, devices in found.items() if name.endswith("/dense_kernel_momentum"))
    assert momentum == ["CPU:1", "CPU:3"]
    assert sorted(found["products"]) == ["CPU:1", "CPU:1", "CPU:3", "CPU:3"], "of the two dense layers, forward"


def test_a_place_for_no_layer_is_refused(trainer):
    with pytest.raises(ConfigError, match=r"^distribute.place: 'lstm' is found in none of image, "):
        trainer.train(trainer.run("distribute.kind=model_parallel", "distribute.place={lstm: 1}"))
