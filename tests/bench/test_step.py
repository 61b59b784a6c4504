"""The step bench: every side takes steps, every figure is there. How fast it is, is not for a test to say."""

import json

import pytest

from tasks.bench.runner import Cost
from tasks.bench.step import CHECKPOINT, LOGGING, SIDES, added_rows, bench_step, step_costs, step_ratios, step_rows

SHORT = {"ours": [Cost(2, 3)], "fit": [Cost(9, 9)], "hand_loop": [Cost(2, 3)], "tf_function": [Cost(4, 5)]}
LONG = {"ours": [Cost(22, 23)], "fit": [Cost(69, 49)], "hand_loop": [Cost(12, 13)], "tf_function": [Cost(44, 25)]}
STEPS = (1, 11)


def test_a_step_costs_what_a_long_turn_takes_longer_and_a_call_what_is_left_of_a_short_one():
    assert step_costs(SHORT["fit"], LONG["fit"], STEPS) == [Cost(6, 4)]
    rows = {(row.side, row.metric): row.median for row in step_rows(SHORT, LONG, STEPS, name="mlp_x2")}
    assert rows["fit", "cpu_seconds_per_step_mlp_x2"] == 6
    assert rows["fit", "steps_per_second_mlp_x2"] == 1 / 4
    assert rows["fit", "examples_per_second_mlp_x2"] == 64 / 4
    assert rows["fit", "seconds_per_call_mlp_x2"] == 9 - 4


def test_ratios_are_cpu_seconds_over_ours_and_for_the_cnn_our_rate_over_that_of_the_loop():
    assert step_ratios(SHORT, LONG, STEPS, model="mlp") == {"fit": 3, "hand_loop": 0.5, "tf_function": 2}
    found = step_ratios(SHORT, LONG, STEPS, model="cnn")
    assert found.keys() == {"fit_cnn", "hand_loop_cnn", "tf_function_cnn", "hand_loop_cnn_examples_per_second"}
    assert found["hand_loop_cnn_examples_per_second"] == 1 / 2


def test_a_checkpoint_and_logging_are_told_as_the_share_of_the_steps_that_they_take():
    rows = [
        *added_rows(CHECKPOINT, [Cost(1, 10)], [Cost(4, 2)], num_steps=100, name="cnn_x1"),
        *added_rows(LOGGING, [Cost(1, 0.5)], [Cost(4, 2)], num_steps=1, name="cnn_x1"),
    ]
    assert {(row.side, row.metric): row.median for row in rows} == {
        ("checkpoint", "share_of_100_steps_cnn_x1"): 10 / 200,
        ("checkpoint", "cpu_share_of_100_steps_cnn_x1"): 1 / 400,
        ("logging", "share_of_step_cnn_x1"): 1 / 4,
        ("logging", "cpu_share_of_step_cnn_x1"): 1 / 4,
    }


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_the_report_has_every_side():
    report = bench_step(rounds=1, models=("mlp",), replicas=(2,))
    assert {row.side for row in report.rows} == {*SIDES, CHECKPOINT, LOGGING}
    assert all(row.median > 0 for row in report.rows if "per_step" in row.metric)
    assert report.ratios.keys() == {"fit", "hand_loop", "tf_function"}
    assert json.loads(report.model_dump_json()).keys() == {"rows", "ratios", "host"}
