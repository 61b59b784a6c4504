"""Shards to tf.data: an order that is a function, a position that is a number."""
