"""Classes are shown equally often when asked, by a draw that is a function of the seed."""

import numpy as np
import tensorflow as tf

from tasks.feed.balance import ONE, class_weights, draw_balanced

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
