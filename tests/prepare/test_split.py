"""Splits: exact, disjoint, seeded and stable, by each of the five rules; what is missing is named."""

import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tasks.errors import ConfigError, DataError
from tasks.prepare.keys import hash_keys
from tasks.prepare.split import LEFT_OUT, SplitBy, assign_splits, parse_time
from tasks.splits import Splits

SPLITS_ADAPTER: TypeAdapter[Any] = TypeAdapter(Splits)
DAY = 24 * 3600 * 10**6


def _assign(
    config: dict[str, Any], labels: NDArray[np.int64], split_by: SplitBy = None, *, seed: int = 0
) -> tuple[list[int], tuple[str, ...]]:
    splits, notes = assign_splits(
        SPLITS_ADAPTER.validate_python(config),
        labels=labels,
        hashes=hash_keys(map(str, range(len(labels))), seed)[:, 0],
        split_by=split_by,
        label_map=[f"class{label}" for label in range(int(labels.max()) + 1)],
        seed=seed,
    )
    return splits.tolist(), notes


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(45, 90), min_size=1, max_size=12),
    weights=st.tuples(*[st.integers(1, 10)] * 3),
    seed=st.integers(0, 2**31 - 1),
)
def test_fractions_are_exact_and_hold_their_part_of_every_class(
    counts: list[int], weights: tuple[int, int, int], seed: int
) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    shares = [weight / sum(weights) for weight in weights]
    config = dict(zip(("train", "validation", "test"), shares, strict=True))
    splits = np.array(_assign(config, labels, seed=seed)[0])
    for index, share in enumerate(shares):
        size = np.count_nonzero(splits == index)
        assert abs(size - share * len(labels)) < 1
        even = np.array(counts) * size / len(labels)
        assert np.abs(np.bincount(labels[splits == index], minlength=len(counts)) - even).max() <= 1


def test_class_sorted_data_are_stratified() -> None:
    labels = np.repeat(np.arange(4), 100)
    splits = np.array(_assign({}, labels)[0])
    assert [np.bincount(labels[splits == index]).tolist() for index in range(3)] == [[80] * 4, [10] * 4, [10] * 4]


def test_another_seed_gives_other_fractions() -> None:
    labels = np.arange(500) % 5
    assert _assign({}, labels, seed=3) == _assign({}, labels, seed=3) != _assign({}, labels, seed=4)


def test_examples_keep_their_split_when_others_come_in() -> None:
    before = np.array(_assign({}, np.arange(10_000) % 5)[0])
    after = np.array(_assign({}, np.arange(10_100) % 5)[0])[:10_000]
    assert np.count_nonzero(before != after) < 30  # those at the edges; a new shuffle would move about 3,400


def test_equal_groups_are_never_in_two_splits_and_shares_are_met() -> None:
    chance = np.random.default_rng(0)
    groups = [f"patient{number}" for number in chance.integers(0, 300, 5000)]
    splits, notes = _assign({"kind": "group", "column": "patient"}, np.arange(5000) % 3, groups)
    of_group: dict[str, set[int]] = {}
    for group, split in zip(groups, splits, strict=True):
        of_group.setdefault(group, set()).add(split)
    assert {len(found) for found in of_group.values()} == {1}
    assert np.abs(np.bincount(splits) - [4000, 500, 500]).max() <= 25
    assert notes == ()


def test_a_large_group_goes_where_it_fits_whatever_its_name() -> None:
    groups = [f"user{number}" for number in range(40)] + ["shop"] * 60
    for seed in range(20):
        splits, _ = _assign({"kind": "group", "column": "user"}, np.zeros(100, np.int64), groups, seed=seed)
        assert np.bincount(splits).tolist() == [80, 10, 10]
        assert splits[-1] == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_class_of_one_example_among_larger_ones_is_learned(seed: int) -> None:
    chance = np.random.default_rng(seed)
    counts = [*chance.integers(20, 500, 1 + seed % 10), 1]
    order = chance.permutation(len(counts))
    labels = np.repeat(order, counts)
    splits = np.array(_assign({}, labels, seed=seed)[0])
    assert np.unique(labels[splits == 0]).tolist() == sorted(order.tolist())


def test_three_groups_fill_three_splits_and_two_cannot() -> None:
    config = {"kind": "group", "column": "user"}
    splits, _ = _assign(config, np.zeros(9, np.int64), ["a"] * 7 + ["b", "c"])
    assert sorted(set(splits)) == [0, 1, 2]
    with pytest.raises(DataError, match=r"only 2 group\(s\) \(a, b\) for 3 splits"):
        _assign(config, np.zeros(3, np.int64), ["a", "a", "b"])


def test_the_newest_are_the_test_split_and_equal_times_stay_together() -> None:
    times = np.array([3, 1, 2, 9, 5, 6, 7, 8, 9, 4])
    config = {"kind": "time", "column": "day", "train": 0.6, "validation": 0.2, "test": 0.2}
    assert _assign(config, np.zeros(10, np.int64), times)[0] == [0, 0, 0, 2, 0, 0, 1, 1, 2, 0]
    equal = np.array([1, 2, 3, 3, 3, 3, 4, 5])
    assert _assign(config, np.zeros(8, np.int64), equal)[0] == [0, 0, 1, 1, 1, 1, 1, 2]


def test_boundaries_of_time_may_stand_in_yaml_without_quotes() -> None:
    config = {"kind": "time", "column": "day"}
    for dates, texts in (
        ((datetime.date(2026, 1, 31), datetime.datetime(2026, 2, 1, 12)), ("2026-01-31", "2026-02-01T12:00:00")),
        ((2024, 2025), ("2024", "2025")),
    ):
        found = SPLITS_ADAPTER.validate_python({**config, "validation_from": dates[0], "test_from": dates[1]})
        assert (found.validation_from, found.test_from) == texts


def test_boundaries_of_time_are_dates_in_utc() -> None:
    days = np.arange(10) * DAY + parse_time("2026-01-01")
    config = {
        "kind": "time",
        "column": "day",
        "validation_from": "2026-01-05",
        "test_from": "2026-01-08T00:00:00+00:00",
    }
    assert _assign(config, np.zeros(10, np.int64), days)[0] == [0] * 4 + [1] * 3 + [2] * 3
    assert parse_time("1970-01-02") == DAY
    assert parse_time("1970-01-01T01:00:00.5+01:00") == 500_000
    assert parse_time("-17") == -17
    with pytest.raises(ConfigError, match="'yesterday' is no time; write 2026-01-31"):
        parse_time("yesterday")
    with pytest.raises(ConfigError, match=r"validation_from=2026-02-01: must be before test_from=2026-01-01"):
        _assign(
            {"kind": "time", "column": "day", "validation_from": "2026-02-01", "test_from": "2026-01-01"},
            np.zeros(10, np.int64),
            days,
        )


def test_windows_of_time_end_with_the_newest_example_and_move_on_with_it() -> None:
    noon = parse_time("2026-01-01T12:00:00")
    config = {"kind": "time", "column": "day", "validation_window": "1 day", "test_window": "48 hours"}
    days = np.arange(8) * DAY + noon
    assert _assign(config, np.zeros(8, np.int64), days)[0] == [0] * 5 + [1] + [2] * 2
    # Two weeks of new examples, the newest not the last of them: it alone bounds the windows.
    days = np.concatenate([days, np.array([20, 21, 19, 18]) * DAY + noon])
    assert _assign(config, np.zeros(12, np.int64), days)[0] == [0] * 8 + [2, 2, 1, 0]


def test_a_window_of_time_begins_after_the_moment_that_lies_its_length_before_the_newest_example() -> None:
    newest = parse_time("2026-03-08")
    config = {"kind": "time", "column": "day", "validation_window": "2 hours", "test_window": "1 week"}
    ages = np.array([0, 7 * DAY - 1, 7 * DAY, 7 * DAY + DAY // 12 - 1, 7 * DAY + DAY // 12])
    assert _assign(config, np.zeros(5, np.int64), newest - ages)[0] == [2, 2, 1, 1, 0]
    years = {"kind": "time", "column": "year", "validation_window": 1, "test_window": "2"}
    assert _assign(years, np.zeros(6, np.int64), np.array([2026, 2025, 2024, 2023, 2022, 2026]))[0] == [
        2,
        2,
        1,
        0,
        0,
        2,
    ]
    with pytest.raises(DataError, match=r"validation would hold no example; change the shares, boundaries or windows"):
        _assign(years, np.zeros(3, np.int64), np.array([2020, 2025, 2026]))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"test_window": "7 days"}, "must have both validation_window and test_window, or neither"),
        (
            {"validation_window": 1, "test_window": 2, "validation_from": 2024, "test_from": 2025},
            r"must have first times \(validation_from, test_from\) or windows, not both",
        ),
        ({"validation_window": "1 day", "test_window": "1 month"}, "should match pattern"),
        ({"validation_window": "1 day", "test_window": "0 days"}, "should match pattern"),
    ],
)
def test_bounds_of_time_that_say_no_split_are_refused(bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPLITS_ADAPTER.validate_python({"kind": "time", "column": "day", **bounds})


def test_official_splits_are_taken_by_name_and_a_share_out_of_train() -> None:
    names = ["train"] * 100 + ["test"] * 20 + ["unsupervised"] * 7
    labels = np.arange(127) % 2
    splits, notes = _assign({"kind": "official", "validation": 0.1}, labels, names)
    assert np.bincount(np.array(splits) + 1).tolist() == [7, 90, 10, 20]
    assert set(splits[:100]) == {0, 1}
    assert splits[100:] == [2] * 20 + [LEFT_OUT] * 7
    assert notes == ("7 examples are in no split: those of unsupervised",)
    assert np.bincount(labels[np.array(splits) == 1]).tolist() == [5, 5]


def test_unknown_official_split_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"data\.splits\.validation=validation: the source has no such split; it has test"
    ):
        _assign({"kind": "official"}, np.zeros(4, np.int64), ["train", "train", "test", "test"])


def test_files_are_taken_by_pattern_and_none_twice() -> None:
    files = ["2025/a.csv", "2025/b.csv", "2026/a.csv", "2026/b.csv"]
    config = {"kind": "file", "train": "2025/*", "validation": "2026/a*", "test": "2026/b*"}
    assert _assign(config, np.zeros(4, np.int64), files)[0] == [0, 0, 1, 2]
    with pytest.raises(ConfigError, match=r"2026/a\.csv would go to train and to validation"):
        _assign({**config, "train": "*"}, np.zeros(4, np.int64), files)
    with pytest.raises(
        ConfigError, match=r"data\.splits\.test=2027/\*: the source has no such file; it has 2025/a\.csv"
    ):
        _assign({**config, "test": "2027/*"}, np.zeros(4, np.int64), files)


def test_class_that_a_split_lacks_is_named() -> None:
    labels = np.array([0] * 50 + [1] * 50 + [2])
    names = ["train"] * 40 + ["test"] * 10 + ["train"] * 50 + ["train"]
    splits, notes = _assign({"kind": "official", "validation": 0.1}, labels, names)
    assert notes == ("validation holds no example of class class2", "test holds no example of class class1, class2")
    assert splits[-1] == 0
    with pytest.raises(
        DataError, match=r"train would hold no example of class class2, so that no model could learn it"
    ):
        _assign({"kind": "official", "validation": 0.1}, labels, [*names[:-1], "test"])


def test_empty_split_is_refused() -> None:
    with pytest.raises(DataError, match=r"validation would hold no example"):
        _assign({}, np.zeros(3, np.int64))


def test_rule_that_the_source_cannot_follow_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"data\.splits\.kind=official: this source has nothing to split by in that way"
    ):
        _assign({"kind": "official"}, np.zeros(3, np.int64))
