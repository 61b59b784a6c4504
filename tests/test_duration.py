"""Durations and the steps they come to."""

import json

import pytest

from tasks.duration import Duration


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("7 steps", 7),
        ("1 epochs", 4),
        ("3 epochs", 12),
        ("1 examples", 1),
        ("8 examples", 1),
        ("9 examples", 2),
        ("24 examples", 3),
        ("25 examples", 4),  # the short last batch is a step of its own
        ("30 examples", 4),  # a whole epoch
        ("31 examples", 5),
        ("60 examples", 8),
    ],
)
def test_duration_in_steps_when_the_short_last_batch_is_kept(text: str, steps: int) -> None:
    duration = Duration(text)
    assert duration.steps(num_examples=30, global_batch_size=8, steps_per_epoch=4) == steps


@pytest.mark.parametrize(
    ("text", "steps"), [("2 epochs", 6), ("24 examples", 3), ("30 examples", 3), ("31 examples", 4)]
)
def test_duration_in_steps_when_the_short_last_batch_is_dropped(text: str, steps: int) -> None:
    duration = Duration(text)
    assert duration.steps(num_examples=30, global_batch_size=8, steps_per_epoch=3) == steps


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "3 epoch",
        "0 steps",
        "-1 steps",
        "1.5 epochs",
        "3  epochs",
        "03 steps",
        " 3 steps",
        "3 steps\n",
        "",
        3,
        None,
    ],
)
def test_what_is_no_duration_is_refused_with_the_rule(text: object) -> None:
    with pytest.raises(ValueError, match="must be a whole number and a unit: '500 steps', '3 epochs' or"):
        Duration(text)


def test_duration_is_written_as_it_is_read() -> None:
    assert str(Duration("100000 examples")) == "100000 examples"
    assert json.dumps(Duration("3 epochs")) == '"3 epochs"'
