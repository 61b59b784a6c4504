"""What a training begins with, and what of it stays."""

import numpy as np

QUICK = (
    "feed.global_batch_size=500",
    "train.optimizer.schedule.kind=constant",
    "model.args={width: 4, largest_value: 16}",
    "distribute.num_replicas=2",
)


def test_frozen_layers_stay_as_they_were_statistics_included(trainer):
    frozen = (*QUICK, "model.freeze=[^conv2d$, ^sync_batch_norm$]")
    one, two = (trainer.weights(*frozen, f"train.total={steps} steps") for steps in (1, 3))
    same = {name.split()[1] for name in one if np.array_equal(one[name], two[name])}
    kept = {
        "conv2d/kernel",
        *(f"sync_batch_norm/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")),
    }
    assert kept <= same
    assert not {"conv2d_1/kernel", "sync_batch_norm_1/moving_mean", "dense/kernel"} & same
    assert not [name for name in one if "momentum" in name and "conv2d_kernel" in name], "no state is kept of them"
