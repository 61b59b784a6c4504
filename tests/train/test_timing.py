"""Throughput and the wait for input, from the timestamps of the steps."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.train.flops import Work
from tasks.train.step import StepOutcomes
from tasks.train.timing import PERCENTILE_STEPS, Timing


def outcomes(seconds, waits, examples=10):
    return of_elapsed(np.cumsum(seconds), waits, examples)


def of_elapsed(elapsed, waits, examples=10):
    steps = len(elapsed)
    return StepOutcomes(
        loss=tf.zeros(steps),
        score=tf.zeros(steps),
        num_valid=tf.fill([steps], tf.constant(examples, tf.int64)),
        healthy=tf.fill([steps], True),
        applied=tf.fill([steps], True),
        wait_seconds=tf.constant(waits, tf.float64),
        elapsed_seconds=tf.constant(elapsed, tf.float64),
    )


@pytest.mark.parametrize("calls", [[5], [1, 4], [1, 1, 3], [2, 3]])
def test_the_first_two_steps_do_not_count_however_the_steps_are_cut_into_calls(calls):
    seconds, waits = [9.0, 8.0, 1.0, 2.0, 3.0], [7.0, 7.0, 0.5, 1.0, 0.0]
    timing = Timing(ready_wait_seconds=0.25)
    start = 0
    for steps in calls:
        timing.add(outcomes(seconds[start : start + steps], waits[start : start + steps]))
        start += steps
    figures = timing.figures()
    assert figures["examples_per_second"] == 30 / 6
    assert figures["step_seconds_p50"] == 2
    assert figures["input_wait_fraction"] == (0.25 + 0.75) / 6
    assert figures["input_wait_seconds_p50"] == 0.25
    assert figures["input_wait_seconds_p95"] == pytest.approx(0.7)


def test_of_quick_steps_all_count_though_only_some_were_timed():
    timing, none = Timing(0), np.nan
    timing.add(outcomes([1.0, 1.0], [0.0, 0.0]))
    timing.add(of_elapsed([2.0, none, 4.0, 8.0], [1.0, none, none, 2.0]), call_seconds=16.0)
    figures = timing.figures()
    assert figures["examples_per_second"] == 40 / 8
    assert figures["input_wait_fraction"] == 6 / 8
    assert figures["host_fraction"] == 1 - 8 / 16
    assert (figures["step_seconds_p50"], figures["input_wait_seconds_p50"]) == (3, 1.5)


def test_a_training_whose_later_steps_were_not_timed_has_figures_too():
    timing = Timing(0)
    timing.add(of_elapsed([5.0, 6.0, np.nan, 10.0], [0.0, 0.0, np.nan, np.nan]))
    assert timing.figures()["step_seconds_p50"] == 2
    assert timing.figures()["examples_per_second"] == 20 / 4


def test_a_training_of_two_steps_has_figures_too():
    timing = Timing(ready_wait_seconds=0)
    timing.add(outcomes([4.0, 1.0], [1.0, 0.0]))
    assert timing.figures()["examples_per_second"] == 20 / 5


def test_a_long_training_keeps_only_its_latest_steps():
    timing = Timing(ready_wait_seconds=0)
    for second in (5.0, 1.0):
        timing.add(outcomes(np.full(PERCENTILE_STEPS, second), np.zeros(PERCENTILE_STEPS)))
    assert timing.figures()["step_seconds_p95"] == 1


def test_throughput_is_related_to_replicas_operations_and_peak():
    timing = Timing(0, Work(num_replicas=2, flops_per_example=3.0, flops_per_step=30.0, peak_flops=120.0))
    timing.add(outcomes([9.0, 9.0, 0.5], [0.0, 0.0, 0.0]))
    figures = timing.figures()
    assert figures["examples_per_second_per_replica"] == 10
    assert figures["model_flops_per_step"] == 30
    assert figures["model_flops_per_second"] == 60
    assert figures["mfu"] == 0.5
    assert not {"model_flops_per_step", "mfu"} & Timing(0).figures().keys()


def test_the_hosts_share_is_that_of_calls_in_which_no_step_ran_the_first_left_out():
    timing = Timing(0)
    timing.add(outcomes([1.0, 1.0], [0.0, 0.0]), call_seconds=50.0)
    assert "host_fraction" not in timing.figures()
    timing.add(outcomes([1.0, 2.0], [0.0, 0.0]), call_seconds=4.0)
    assert timing.figures()["host_fraction"] == 0.25
