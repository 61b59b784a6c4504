"""Leaks: an example counts if its inputs are a training example's, to the byte, whatever its label and id."""

import numpy as np

from tasks.evaluate.leaks import content_digests, find_leaks
from tasks.feed.records import stored_batches, stored_rows
from tests.every_kind import make_example, manifest_of, write_examples


def test_rows_are_told_apart_by_every_byte():
    strings = np.array([b"a", b"ab", b"a"], object), np.array([b"bc", b"c", b"bc"], object)
    first, second, third = content_digests({"x": strings[0], "y": strings[1]})
    assert first == third != second  # 'abc' all of them
    numbers = {"x": np.array([[1, 2], [1, 3], [1, 2]], np.int64), "y": np.array([0.5, 0.5, 0.5])}
    first, second, third = content_digests(numbers)
    assert first == third != second
    assert content_digests({"b": numbers["y"], "a": numbers["x"]}) == content_digests(
        {"a": numbers["x"], "b": numbers["y"]}
    )


def test_an_example_with_the_inputs_of_a_training_example_has_leaked(tmp_path):
    train = [make_example(id) for id in range(300)]
    test = [make_example(id) for id in range(300, 306)]
    test[1] = make_example(299) | {"id": 301, "label": 2}
    test[4] = make_example(5) | {"id": 304}
    test[5] = make_example(6) | {"id": 305, "count": 7}
    splits = {name: write_examples(tmp_path / name, each) for name, each in (("train", train), ("test", test))}
    manifest = manifest_of(splits)
    assert find_leaks(tmp_path, manifest, "test").tolist() == [301, 304]

    ids = np.concatenate([batch["id"] for batch in stored_batches(tmp_path, manifest, "train", ["id"])])
    assert ids.tolist() == list(range(300))
    found = stored_rows(tmp_path, manifest, "train", ["id", "comment"], [280, 1])
    assert found == [{name: train[id][name] for name in ("id", "comment")} for id in (280, 1)]
