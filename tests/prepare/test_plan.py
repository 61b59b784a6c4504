"""The plan: the order is a shuffle over each split; shards are even."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.errors import ConfigError
from tasks.prepare.keys import hash_keys
from tasks.prepare.plan import plan_order, plan_shards


def test_order_holds_every_row_of_a_split_once_and_no_other() -> None:
    splits = np.array([0, 0, 1, -1, 2, 0, 1], np.int8)
    order = plan_order(splits, hash_keys(map(str, range(7)), 0)[:, 1])
    assert {split: sorted(rows.tolist()) for split, rows in order.items()} == {
        "train": [0, 1, 5],
        "validation": [2, 6],
        "test": [4],
    }


def test_sorted_classes_are_mixed_in_every_part_of_a_split() -> None:
    labels = np.repeat(np.arange(10), 1000)
    train = plan_order(np.zeros(10_000, np.int8), hash_keys(map(str, range(10_000)), 0)[:, 1])["train"]
    for part in np.split(labels[train], 8):
        assert np.bincount(part, minlength=10).min() > 90  # of 125 each


def test_hashes_of_a_seed_never_change() -> None:
    # If this fails, every split of every data set is another: raise FORMAT_VERSION.
    assert hash_keys(["a", "ä", "\udc80"], 7).tolist() == [
        [11838863620957963210, 13173885999836887043],
        [7588929336230298937, 1626858844819707177],
        [5139705320962782182, 18183061963273378138],
    ]


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


def test_number_of_shards_is_a_multiple_of_the_readers_unless_there_are_fewer_examples() -> None:
    assert len(plan_shards(1000, size_bytes=100_000, target_bytes=100_000, multiple=8)) == 8
    assert len(plan_shards(1000, size_bytes=900_001, target_bytes=100_000, multiple=8)) == 16
    assert len(plan_shards(5, size_bytes=100_000, target_bytes=100_000, multiple=8)) == 5


def test_number_of_shards_is_exact_or_refused_with_the_numbers() -> None:
    assert len(plan_shards(1000, size_bytes=1, target_bytes=10**9, num_shards=7)) == 7
    with pytest.raises(ConfigError, match=r"data\.num_shards=7: the training split has only 6 examples"):
        plan_shards(6, size_bytes=1, target_bytes=1, num_shards=7)
