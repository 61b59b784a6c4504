"""Parsing: serialized tf.Examples to tensors, the same in the feed and in the exported model."""

from collections.abc import Iterable, Mapping

import tensorflow as tf

from tasks.prepare.manifest import Feature


def parse_batch(serialized: tf.Tensor, features: Mapping[str, Feature], names: Iterable[str]) -> dict[str, tf.Tensor]:
    """Returns {name: [b, *shape] in the feature's dtype} of `serialized`: [b] string."""
    wanted = {name: features[name] for name in names}
    parsed = tf.io.parse_example(serialized, {name: _stored(feature) for name, feature in wanted.items()})
    return {name: _decode(parsed[name], feature) for name, feature in wanted.items()}


def _stored(feature: Feature) -> tf.io.FixedLenFeature:
    if feature.storage == "raw_bytes":
        return tf.io.FixedLenFeature([], tf.string)
    return tf.io.FixedLenFeature(feature.shape, tf.int64)


def _decode(stored: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.storage == "raw_bytes":
        return tf.reshape(tf.io.decode_raw(stored, feature.dtype), [-1, *feature.shape])
    return tf.cast(stored, feature.dtype)
