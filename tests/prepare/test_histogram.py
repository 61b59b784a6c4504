"""Histograms that say the same of the same numbers, however they came, in a bounded size."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.prepare.histogram import MAX_BINS, histogram_of, merged, side_by_side
from tasks.prepare.manifest import Histogram

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30)
MANY = {
    "normal": lambda draws: draws.normal(size=20_000),
    "log-normal": lambda draws: draws.lognormal(0, 2, 20_000),
    "far from zero": lambda draws: 1.7e9 + draws.uniform(0, 1e7, 20_000),
    "negative": lambda draws: -draws.exponential(1e-3, 20_000),
}


def test_few_different_numbers_have_a_bin_each() -> None:
    assert histogram_of(np.array([0.1, -0.0, 2, -3, 0, 2])) == Histogram(
        dropped_bits=0, numbers=(-3, 0, 0.1, 2), counts=(1, 2, 1, 2)
    )
    assert math.copysign(1, histogram_of(np.array([-0.0])).numbers[0]) == 1
    assert histogram_of(np.zeros(0)) == Histogram()


def test_of_more_neighbours_share_a_bin_which_is_named_by_its_number_nearest_to_zero() -> None:
    numbers = np.arange(512, 1024, dtype=np.float64)  # equally far apart, so that all bins are of two
    found = histogram_of(numbers)
    # 512 to 1023 differ in the 9 highest of the 52 bits of the fraction; one of them is dropped.
    assert found == Histogram(dropped_bits=44, numbers=tuple(range(512, 1024, 2)), counts=(2,) * 256)
    assert histogram_of(-numbers) == Histogram(dropped_bits=44, numbers=tuple(range(-1022, -511, 2)), counts=(2,) * 256)


@pytest.mark.parametrize("kind", MANY)
def test_order_and_batches_change_nothing_and_no_bin_holds_much(kind: str) -> None:
    draws = np.random.default_rng(0)
    numbers = MANY[kind](draws)
    at_once = histogram_of(numbers)
    for num_parts in (3, 400):
        some = Histogram()
        for part in np.array_split(draws.permutation(numbers), num_parts):
            some = merged(some, histogram_of(part))
        assert some == at_once
    assert len(at_once.counts) <= MAX_BINS
    assert sum(at_once.counts) == len(numbers)
    assert max(at_once.counts) < 0.06 * len(numbers)


@given(NUMBERS, NUMBERS)
def test_merging_and_comparing_know_no_order(one: list[float], other: list[float]) -> None:
    first, second = (histogram_of(np.array(each, np.float64)) for each in (one, other))
    assert merged(first, second) == merged(second, first) == histogram_of(np.array(one + other, np.float64))
    before, after = side_by_side(first, second)
    assert (before.sum(), after.sum()) == (len(one), len(other))
    assert [each.tolist() for each in side_by_side(second, first)] == [after.tolist(), before.tolist()]


def test_two_histograms_are_compared_in_the_bins_of_the_coarser() -> None:
    fine = histogram_of(np.array([512.0, 513, 515, 9]))
    before, after = side_by_side(fine, histogram_of(np.arange(512.0, 1024)))
    assert before[:4].tolist() == [1, 2, 1, 0]  # 9 by itself, 512 with 513, 515 in the place of 514
    assert after[:4].tolist() == [0, 2, 2, 2]
