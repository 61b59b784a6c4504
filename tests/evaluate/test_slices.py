"""Slices: every example in the slice of its value, values named as a reader knows them."""

import numpy as np
import pytest

from tasks.errors import ConfigError
from tasks.evaluate.slices import by_value, read_slices, slice_figures
from tasks.feed.columns import check_columns
from tasks.prepare.manifest import SplitManifest
from tasks.train.setup import set_up
from tests.every_kind import manifest_of


def plain(slices):
    return {value: rows.tolist() for value, rows in slices.items()}


def texts(*values):
    return np.array([value.encode() for value in values], object)


def test_texts_and_whole_numbers_are_told_by_value_and_missing_ones_apart():
    assert plain(by_value(texts("rot", "grün", "rot"))) == {"grün": [1], "rot": [0, 2]}
    assert plain(by_value(np.array([10, -2, 10]))) == {"-2": [1], "10": [0, 2]}
    missing = np.array([False, True, False])
    assert plain(by_value(texts("b", "", "a"), missing)) == {"a": [2], "b": [0], "(missing)": [1]}
    assert plain(by_value(np.zeros(2), np.ones(2, bool))) == {"(missing)": [0, 1]}


def test_a_value_that_is_called_like_the_missing_ones_stays_a_slice_of_its_own():
    missing = np.array([False, True])
    assert plain(by_value(texts("(missing)", ""), missing)) == {"(missing)": [0], "((missing))": [1]}


def test_of_many_texts_the_most_frequent_are_told():
    values = texts(*(f"{number:02}" for number in range(60)), *(f"{number:02}" for number in range(40, 60)))
    found = by_value(values)
    kept = [f"{number:02}" for number in (*range(30), *range(40, 60))]  # ten of the 40 that occur once have no place
    assert list(found) == [*kept, "(other values)"]
    assert found["40"].tolist() == [40, 60]
    assert found["(other values)"].tolist() == list(range(30, 40))


def test_numbers_are_cut_at_quantiles_and_named_by_their_bounds():
    values = np.array([0.5, 0, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5])
    assert plain(by_value(values)) == {
        "0 to 1": [0, 1],
        "1 to 2": [2, 3],
        "2 to 3": [4, 5],
        "3 to 4": [6, 7],
        "4 to 5": [8, 9, 10],
    }
    assert list(by_value(np.arange(101))) == ["0 to 20", "20 to 40", "40 to 60", "60 to 80", "80 to 100"]
    assert next(iter(by_value(1e9 + np.arange(3.0)))) == "1000000000 to 1000000000.4"
    assert list(by_value(np.array([0.001, 12_346.0]))) == ["0.001 to 2469", "9877 to 12350"], (
        "two of five have examples"
    )
    assert plain(by_value(np.full(3, 0.25))) == {"0.25": [0, 1, 2]}


def test_the_target_and_the_shard_are_columns_too(tmp_path):
    def of(kind, targets, names, columns):
        manifest = manifest_of({}, config={"target": {"kind": kind}}, label_map=names)
        return {name: plain(found) for name, found in read_slices(tmp_path, manifest, "test", columns, targets).items()}

    assert of("multiclass", np.array([2, 0, 2]), ("no", "yes", "später"), ["label"]) == {
        "label": {"no": [1], "später": [0, 2]}
    }
    several = np.array([[1, 1], [0, 0], [0, 1]], np.uint8)
    assert of("multi_label", several, ("a", "b"), ["label"]) == {"label": {"a": [0], "b": [0, 2], "(none)": [1]}}
    numbers = np.array([[1.0, 5.0], [2.0, 5.0]])
    assert of("regression", numbers, ("size", "price"), ["price"]) == {"price": {"5": [0, 1]}}

    first = {"size_bytes": 1, "record_bytes": 1, "sha256": "", "offsets": (0,)}
    shards = [{"file": "a", "num_examples": 2, **first}, {"file": "b", "num_examples": 1, **first}]
    split = SplitManifest.model_validate({"num_examples": 3, "class_counts": [1, 1, 1], "shards": shards})
    found = read_slices(tmp_path, manifest_of({"test": split}), "test", ["shard"], np.zeros(3, int))
    assert plain(found["shard"]) == {"a": [0, 1], "b": [2]}


def test_each_slice_has_its_figures_and_small_ones_are_marked():
    right = np.array([1, 1, 0, 1])
    slices = {"colour": {"blue": np.array([0, 1, 2]), "red": np.array([3])}}
    blue, red = slice_figures(slices, lambda rows: {"accuracy": right[rows].mean()}, min_examples=2)
    assert (blue.column, blue.value, blue.num_examples, blue.is_small) == ("colour", "blue", 3, False)
    assert blue.figures == {"accuracy": 2 / 3}
    assert (red.value, red.num_examples, red.is_small, red.figures) == ("red", 1, True, {"accuracy": 1})


def test_a_column_that_is_not_stored_is_refused_before_training(digits):
    with pytest.raises(ConfigError, match=r"'site' is not stored in the shards, .* take any of id, label, shard$"):
        set_up(digits.run("evaluate.slices=[site]"), digits.shards)


def test_a_column_that_is_not_stored_is_refused_with_those_that_are():
    manifest = manifest_of({})
    known = "comment, colour, weight (g), count, colour_missing, weight (g)_missing, id, label, shard"
    check_columns(manifest, known.split(", "))
    with pytest.raises(
        ConfigError, match=r"^evaluate\.slices: 'site' is not stored in the shards, .* take any of (.*)$"
    ) as e:
        check_columns(manifest, ["colour", "site"])
    assert str(e.value).endswith(f"take any of {known}")
    with pytest.raises(ConfigError, match="'photo' is image, by whose values nothing can be told apart"):
        check_columns(manifest, ["photo"])
