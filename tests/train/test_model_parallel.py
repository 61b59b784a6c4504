"""A model whose layers lie on several devices trains as on one."""

import numpy as np

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
