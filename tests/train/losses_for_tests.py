"""Losses that tests train with by their import path."""

import keras
import tensorflow as tf


def focal(labels, logits):
    """The focal loss (Lin et al. 2017) with gamma 2."""
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return losses * (1 - tf.exp(-losses)) ** 2


def cross_entropy(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def mean(labels, logits):
    return tf.reduce_mean(cross_entropy(labels, logits))


def number(labels, logits):
    return 0.0
