"""The plan: splits are exact, stratified and seeded; shards are even."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import DataError
from tasks.prepare.plan import plan_shards, plan_splits

SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def test_sizes_are_the_shares_by_largest_remainder() -> None:
    plan = plan_splits(np.arange(1797) % 10, SHARES, 0)
    assert {split: len(rows) for split, rows in plan.items()} == {"train": 1437, "validation": 180, "test": 180}


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(45, 90), min_size=1, max_size=12),
    weights=st.tuples(*[st.integers(1, 10)] * 3),
    seed=st.integers(0, 2**31 - 1),
)
def test_every_row_is_in_one_split_and_every_class_in_its_even_part(
    counts: list[int], weights: tuple[int, int, int], seed: int
) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    shares = {split: weight / sum(weights) for split, weight in zip(SHARES, weights, strict=True)}
    plan = plan_splits(labels, shares, seed)
    assert sorted(np.concatenate(list(plan.values()))) == list(range(len(labels)))
    for split, rows in plan.items():
        assert abs(len(rows) - shares[split] * len(labels)) < 1
        even = np.array(counts) * len(rows) / len(labels)
        assert np.abs(np.bincount(labels[rows], minlength=len(counts)) - even).max() <= 1


def test_same_seed_gives_same_plan_and_another_seed_another() -> None:
    labels = np.arange(500) % 5
    first, again, other = (plan_splits(labels, SHARES, seed) for seed in (3, 3, 4))
    for split in SHARES:
        assert np.array_equal(first[split], again[split])
        assert not np.array_equal(first[split], other[split])


def test_plan_of_a_seed_never_changes() -> None:
    plan = plan_splits(np.arange(20) % 2, {"train": 0.6, "validation": 0.2, "test": 0.2}, 7)
    assert {split: rows.tolist() for split, rows in plan.items()} == {
        "train": [12, 14, 13, 15, 6, 1, 4, 8, 3, 2, 5, 17],
        "validation": [11, 19, 18, 0],
        "test": [7, 9, 10, 16],
    }


def test_sorted_classes_are_mixed_in_every_part_of_a_split() -> None:
    labels = np.repeat(np.arange(10), 1000)
    train = labels[plan_splits(labels, SHARES, 0)["train"]]
    for part in np.split(train, 8):
        assert np.bincount(part, minlength=10).min() > 70  # of 100 each


def test_split_without_a_class_is_refused_with_numbers() -> None:
    labels = np.array([0] * 97 + [1] * 3)
    with pytest.raises(DataError, match=r"data\.splits\.\w+=0\.1: .* class 1, which has 3 of 100; give"):
        plan_splits(labels, SHARES, 0)


def test_source_without_examples_is_refused() -> None:
    with pytest.raises(DataError, match="no examples"):
        plan_splits(np.array([], np.int64), SHARES, 0)


@settings(deadline=None)
@given(num_examples=st.integers(1, 500), example_bytes=st.integers(1, 300), target_bytes=st.integers(1, 20_000))
def test_shards_cover_all_examples_and_differ_by_one_at_most(
    num_examples: int, example_bytes: int, target_bytes: int
) -> None:
    shards = plan_shards(num_examples, size_bytes=num_examples * example_bytes, target_bytes=target_bytes)
    rows = [row for shard in shards for row in range(shard.start, shard.stop)]
    assert rows == list(range(num_examples))
    lengths = {shard.stop - shard.start for shard in shards}
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1
    assert [(shard.index, shard.num_shards) for shard in shards] == [(i, len(shards)) for i in range(len(shards))]


def test_number_of_shards_follows_the_target_size() -> None:
    assert len(plan_shards(1000, size_bytes=100_000, target_bytes=100_000)) == 1
    assert len(plan_shards(1000, size_bytes=100_001, target_bytes=100_000)) == 2
    assert len(plan_shards(3, size_bytes=100_000, target_bytes=1)) == 3
    assert plan_shards(0, size_bytes=0, target_bytes=1) == []
