"""Labels: values of any type become one label map."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.download.listing import natural_key
from tasks.errors import ConfigError
from tasks.prepare.labels import class_name, label_index, label_map, labels_of, natural_order, one_hot_labels


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("7", "7"),
        (7, "7"),
        (7.0, "7"),
        (np.int8(-7), "-7"),
        (np.float32(7), "7"),
        (True, "true"),
        (np.False_, "false"),
        ("ö".encode(), "ö"),
        (2**63, str(2**63)),
        ("", ""),
    ],
)
def test_a_value_names_the_class_that_it_means(value: object, name: str) -> None:
    assert class_name(value) == name


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf"), None, [1]])
def test_what_names_no_class_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a class"):
        class_name(value)


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    assert natural_order(["10", "2", "1", "-3"]) == ("-3", "1", "2", "10")
    assert natural_order(["a10", "a2", "b", "A1", "7", "07"]) == ("07", "7", "A1", "a2", "a10", "b")
    assert natural_order(["1", "x", "10", "2"]) == ("1", "2", "10", "x")
    assert natural_order(["²", "2", "x²"]) == ("2", "x²", "²")


@given(st.lists(st.text("019-a./²", max_size=6), unique=True))
@settings(max_examples=50, deadline=None)
def test_classes_and_files_have_one_order_unless_they_are_numbers_with_a_minus(names: list[str]) -> None:
    if any(re.fullmatch("-?[0-9]+", name) is None for name in names) or not any("-" in name for name in names):
        assert natural_order(names) == tuple(sorted(names, key=natural_key))
    assert natural_order(names) == natural_order(reversed(names))


def test_labels_from_1_to_n_become_0_to_n_minus_1() -> None:
    classes = label_map([3, 1, 2], "y")
    assert classes == ("1", "2", "3")
    labels = labels_of(np.array([1, 3, 2, 9]), label_index(classes, int))
    assert labels.tolist() == [0, 2, 1, -1]


def test_truth_values_and_texts_keep_apart_what_python_takes_for_equal() -> None:
    index = {"1": 0, "true": 1}
    assert labels_of([1, True, 1.0, "1", b"1"], index).tolist() == [0, 1, 0, 0, 0]
    assert labels_of(["a\0", "a"], {"a": 0, "a\0": 1}).tolist() == [1, 0]


def test_given_classes_are_found_whatever_their_spelling_of_a_number() -> None:
    assert label_index(["1.0", "2"], float) == {"1": 0, "2": 1}
    assert label_index(["False", "True"], bool) == {"false": 0, "true": 1}
    assert label_index(["1.0", "2"], str) == {"1.0": 0, "2": 1}


def test_numbers_to_predict_are_no_classes() -> None:
    with pytest.raises(ConfigError, match=r"'price' is 0\.5, not a class.*regression"):
        label_map([1.0, 0.5], "price")
    with pytest.raises(ConfigError, match=r"'price' has more than 10,000 different values"):
        label_map(range(10_001), "price")
    assert len(label_map(range(10_000), "price")) == 10_000
    with pytest.raises(ConfigError, match="has no value"):
        label_map([], "y")
    with pytest.raises(ConfigError, match="'a' is given twice"):
        label_map([], "y", ["a", "b", "a"])


def test_one_hot_is_the_place_of_the_only_one() -> None:
    values = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 2, 0], [0, 1, 0.5]])
    assert one_hot_labels(values).tolist() == [1, 0, -1, -1, -1, -1]
