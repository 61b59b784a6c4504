"""The learning rate is a function of the step, and has these very values."""

from math import cos, pi, sqrt
from pathlib import Path

import pytest

from tasks.errors import ConfigError

STEPS = [0, 1, 5, 9, 10, 11, 20, 29, 30, 59, 60, 99, 100]  # of 100; an epoch is 10
WARM = [0, 0.1, 0.5, 0.9]  # of the learning rate, after the first four of STEPS, with a warm-up of ten


@pytest.fixture
def rates(workers, tmp_path):
    def rates(*schedules, precision="float64", global_batch_size=256, total_steps=100, **optimizer):
        """Returns the rates of each schedule after each of STEPS, as shares of the learning rate."""
        arguments = {
            "optimizers": [{"learning_rate": 0.3, "schedule": schedule, **optimizer} for schedule in schedules],
            "precision": precision,
            "total_steps": total_steps,
            "steps_per_epoch": 10,
            "global_batch_size": global_batch_size,
            "steps": STEPS,
        }
        folder = str(Path(__file__).parent)
        found = workers.call(
            "optimizer_functions:learning_rates", arguments, log=tmp_path / "log", import_path=[folder]
        )
        return [[rate / 0.3 for rate in each] for each in found]

    return rates


def step(n):
    return 1 if n < 30 else 0.1 if n < 60 else 0.02


SCHEDULES = [
    ({"kind": "constant"}, [1] * len(STEPS)),
    ({"kind": "constant", "warmup": "1 epochs"}, [*WARM, *[1] * (len(STEPS) - 4)]),
    ({"kind": "cosine"}, [(1 + cos(pi * n / 100)) / 2 for n in STEPS]),
    ({"kind": "cosine", "warmup": "10 steps"}, [*WARM, *((1 + cos(pi * (n - 10) / 90)) / 2 for n in STEPS[4:])]),
    ({"kind": "polynomial"}, [1 - n / 100 for n in STEPS]),
    (
        {"kind": "polynomial", "power": 2, "end_factor": 0.1, "warmup": "1 epochs"},
        [*WARM, *(0.1 + 0.9 * (1 - (n - 10) / 90) ** 2 for n in STEPS[4:])],
    ),
    ({"kind": "exponential", "every": "2 epochs", "factor": 0.5}, [0.5 ** (n / 20) for n in STEPS]),
    (
        {"kind": "exponential", "every": "20 steps", "factor": 0.5, "staircase": True, "warmup": "1 epochs"},
        [*WARM, *(0.5 ** ((n - 10) // 20) for n in STEPS[4:])],
    ),
    ({"kind": "step", "boundaries": ["3 epochs", "60 steps"], "factors": [0.1, 0.02]}, [step(n) for n in STEPS]),
    (
        {"kind": "step", "boundaries": ["3 epochs", "6 epochs"], "factors": [0.1, 0.02], "warmup": "1 epochs"},
        [*WARM, *(step(n) for n in STEPS[4:])],
    ),
]


@pytest.mark.parametrize(("precision", "rel"), [("float64", 1e-13), ("float32", 2e-6)])
def test_each_schedule_has_its_exact_values_in_the_precision_of_the_training(rates, precision, rel):
    found = rates(*(schedule for schedule, _ in SCHEDULES), precision=precision)
    for (schedule, expected), values in zip(SCHEDULES, found, strict=True):
        assert values == pytest.approx(expected, rel=rel, abs=rel / 10), schedule


@pytest.mark.parametrize(("scale", "factor"), [("none", 1), ("linear", 2), ("sqrt", sqrt(2))])
def test_it_is_scaled_with_the_global_batch(rates, scale, factor):
    scaled = {"scale_learning_rate": scale, "reference_batch_size": 128}
    line, constant = rates({"kind": "polynomial"}, {"kind": "constant"}, **scaled)
    assert line == pytest.approx([factor * (1 - n / 100) for n in STEPS], rel=1e-13, abs=1e-15)
    assert constant == pytest.approx([factor] * len(STEPS), rel=1e-13)


def test_a_warm_up_that_is_not_shorter_than_the_training_is_refused(rates):
    with pytest.raises(ConfigError) as refused:
        rates({"kind": "constant", "warmup": "2 epochs"}, total_steps=20)
    assert str(refused.value) == (
        "train.optimizer.schedule.warmup=2 epochs: is 20 steps, and train.total only 20; make it shorter than the "
        "training"
    )


@pytest.mark.parametrize("boundaries", [["60 steps", "3 epochs"], ["30 steps", "3 epochs"], ["1 epochs", "2 epochs"]])
def test_boundaries_out_of_order_or_within_the_warm_up_are_refused(rates, boundaries):
    with pytest.raises(ConfigError, match=r"boundaries: are after \d+, \d+ steps, and the warm-up is 10; each must"):
        rates({"kind": "step", "boundaries": boundaries, "factors": [0.1, 0.02], "warmup": "1 epochs"})
