"""Classes are shown equally often when asked, by a draw that is a function of the seed."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.balance import MAX_DRAWN, ONE, class_weights, draw_balanced
from tasks.feed.feed import Feed

LABELS = np.repeat([0, 1, 2], [900, 90, 10])


def draw(labels, counts, seed=0):
    return draw_balanced(tf.constant(labels, tf.int64), class_weights(counts), tf.constant([seed, 7], tf.int64)).numpy()


def test_a_class_weighs_inversely_to_its_count():
    assert class_weights([900, 90, 10]) == [round(ONE / 90), round(ONE / 9), ONE]
    assert class_weights([0, 5, 10]) == [0, ONE, ONE // 2]
    assert class_weights([10**9, 1]) == [1, ONE]


def test_every_class_is_drawn_equally_often_and_its_examples_too():
    for seed in range(20):
        drawn = draw(LABELS, [900, 90, 10], seed)
        assert len(drawn) == len(LABELS)
        assert np.abs(np.bincount(LABELS[drawn]) - 1000 / 3).max() < 1.01
        times = np.bincount(drawn, minlength=1000)
        for label, expected in enumerate([1000 / 3 / 900, 1000 / 3 / 90, 1000 / 3 / 10]):
            assert set(times[label == LABELS]) <= {int(expected), int(expected) + 1}


def test_over_many_seeds_no_example_of_a_class_is_preferred():
    times = sum(np.bincount(draw(LABELS, [900, 90, 10], seed), minlength=1000) for seed in range(400))
    assert np.abs(times[:900] / 400 - 0.37).max() < 0.12


def test_a_balanced_split_is_shown_as_it_is():
    labels = np.tile([0, 1], 50)
    assert np.array_equal(draw(labels, [500, 500]), np.arange(100))


def test_equal_seeds_draw_equally_and_others_otherwise():
    assert np.array_equal(draw(LABELS, [900, 90, 10], 3), draw(LABELS, [900, 90, 10], 3))
    assert not np.array_equal(draw(LABELS, [900, 90, 10], 3), draw(LABELS, [900, 90, 10], 4))


def balanced(digits, *, step=0, num_batches=29, replicas=1, cache="none"):
    """Returns labels and ids as a feed shows them whose split is said to have ten times more of digit 3 than it has."""
    manifest = digits.shards.manifest()
    train = manifest.splits["train"]
    counts = tuple(count * (10 if label == 3 else 1) for label, count in enumerate(train.class_counts))
    skewed = {"train": train.model_copy(update={"class_counts": counts})}
    config = FeedConfig(global_batch_size=50, block=64, window=400, sampling="class_balanced", cache=cache)
    manifest = manifest.model_copy(update={"splits": skewed})
    feed = Feed(digits.shards.directory, manifest, "train", config, seed=3, num_replicas=replicas)
    parts = list(feed.training(step).take(num_batches * replicas).as_numpy_iterator())
    return [np.concatenate([part[name][part["mask"]] for part in parts]) for name in ("label", "id")]


def test_an_epoch_shows_every_class_by_its_weight(digits):
    labels, ids = balanced(digits)
    assert len(labels) == 1437
    counts = np.bincount(labels, minlength=10)
    others = np.delete(counts, 3)
    assert counts[3] == pytest.approx(1437 / 9.1 / 10, abs=4)  # a tenth of what the others have
    assert np.abs(others - 1437 / 9.1).max() < 15  # a window has no more of a class than it has
    assert len(set(ids)) < len(ids)


@pytest.mark.parametrize("cache", ["decoded", "memory"])
def test_what_is_drawn_does_not_depend_on_cache_replicas_or_start(digits, cache):
    _, ids = balanced(digits, num_batches=40)
    assert np.array_equal(balanced(digits, num_batches=40, replicas=4, cache=cache)[1], ids)
    assert np.array_equal(balanced(digits, step=20, num_batches=20, cache=cache)[1], ids[20 * 50 :])


def test_a_window_that_weights_cannot_be_summed_over_is_refused(digits):
    manifest = digits.shards.manifest()
    train = manifest.splits["train"].model_copy(update={"num_examples": MAX_DRAWN + 1})
    manifest = manifest.model_copy(update={"splits": {"train": train}})

    def feed(window):
        config = FeedConfig(window=window, sampling="class_balanced")
        return Feed(digits.shards.directory, manifest, "train", config, seed=3, num_replicas=1)

    feed(MAX_DRAWN)
    with pytest.raises(ConfigError, match=rf"feed.window={MAX_DRAWN + 1}: .* draws from at most {MAX_DRAWN} examples"):
        feed(MAX_DRAWN + 1)


def test_as_many_as_may_be_drawn_are_drawn_exactly():
    half = MAX_DRAWN // 2
    assert np.array_equal(draw(np.arange(MAX_DRAWN) % 2, [half, half]), np.arange(MAX_DRAWN))
