"""Parsing: serialized tf.Examples to tensors, the same in the feed and in the exported model."""

from collections.abc import Iterable, Mapping

import tensorflow as tf

from tasks.feed.signature import stored_shape
from tasks.prepare.manifest import Feature


def parse_batch(serialized: tf.Tensor, features: Mapping[str, Feature], names: Iterable[str]) -> dict[str, tf.Tensor]:
    """Returns {name: [b, *stored_shape] in the feature's dtype} of `serialized`: [b] string."""
    wanted = {name: features[name] for name in names}
    parsed = tf.io.parse_example(serialized, {name: _stored(feature) for name, feature in wanted.items()})
    return {name: _decode(parsed[name], feature) for name, feature in wanted.items()}


def _stored(feature: Feature) -> tf.io.FixedLenFeature:
    match feature.storage:
        case "raw_bytes" | "bytes_list":
            return tf.io.FixedLenFeature([], tf.string)
        case "int64_list":
            return tf.io.FixedLenFeature(stored_shape(feature), tf.int64)
        case "float_list":
            return tf.io.FixedLenFeature(stored_shape(feature), tf.float32)


def _decode(stored: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.storage == "raw_bytes":
        return tf.reshape(tf.io.decode_raw(stored, feature.dtype), [-1, *stored_shape(feature)])
    return tf.cast(stored, feature.dtype)
