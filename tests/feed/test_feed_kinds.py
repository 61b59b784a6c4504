"""Features of every kind come through the feed as they do through Preprocess, cached or not, on any replica."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tasks.config import FeedConfig
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess
from tasks.texts import BytesText, WordsText
from tests.every_kind import FEATURES, make_example, serialize, write_every_kind

CONFIG = FeedConfig(global_batch_size=16, block=64, window=320, image_size=(4, 4), text=BytesText(length=6))
TEXTS = pytest.mark.parametrize("text", [BytesText(length=6), WordsText(max_words=5)], ids=["bytes", "words"])


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_every_kind(tmp_path_factory.mktemp("every-kind"), {"train": 150, "test": 7})


def expected(shards, ids, config=CONFIG):
    preprocess = Preprocess(shards.manifest(), config)
    records = tf.constant([serialize(make_example(int(id))) for id in ids])
    return preprocess(parse_batch(records, FEATURES, preprocess.names))


def test_parsed_features_are_those_that_were_stored(shards):
    records = tf.constant([serialize(make_example(id)) for id in range(8)])
    parsed = parse_batch(records, FEATURES, FEATURES)
    for name, feature in FEATURES.items():
        assert parsed[name].dtype == feature.dtype
        stored = [make_example(id)[name] for id in range(8)]
        assert np.array_equal(parsed[name].numpy(), np.array(stored, object if feature.dtype == "string" else None))


@pytest.mark.parametrize("cache", ["decoded", "memory", "disk", "none"])
@pytest.mark.parametrize("replicas", [1, 3])
@TEXTS
def test_every_input_is_preprocessed_in_the_order_of_the_feed(shards, cache, replicas, text):
    config = CONFIG.model_copy(update={"cache": cache, "text": text})
    feed = Feed(shards.directory, shards.manifest(), "train", config, seed=5, num_replicas=replicas)
    elements = list(feed.training(8).take(4 * replicas).as_numpy_iterator())  # over the end of an epoch
    ids = np.concatenate([element["id"][element["mask"]] for element in elements])
    order = [int(id) for epoch in (0, 1) for id in feed.order(epoch)]
    assert ids.tolist() == order[8 * 16 :][: len(ids)]
    for name, value in expected(shards, ids, config).items():
        assert value.dtype != tf.string
        found = np.concatenate([element[name][element["mask"]] for element in elements])
        assert np.array_equal(found, value), name


def test_one_pass_shows_a_small_split_once(shards):
    feed = evaluation_feed(shards.directory, shards.manifest(), "test", CONFIG, batch_size=4, num_replicas=2)
    elements = list(feed.one_pass().as_numpy_iterator())
    ids = np.concatenate([element["id"][element["mask"]] for element in elements])
    assert ids.tolist() == list(range(150, 157))
    found = np.concatenate([element["photo"][element["mask"]] for element in elements])
    assert np.array_equal(found, expected(shards, ids)["photo"])


@pytest.mark.parametrize("cache", ["decoded", "memory", "disk", "none"])
@TEXTS
def test_nothing_in_the_feed_has_a_state_that_would_forbid_prefetching(shards, cache, text):
    config = CONFIG.model_copy(update={"cache": cache, "text": text})
    feed = Feed(shards.directory, shards.manifest(), "train", config, seed=5, num_replicas=2)
    for dataset in (feed.training(0), feed.one_pass()):
        graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        stateful = {node.op for node in nodes if op_def_registry.get(node.op).is_stateful}
        # Those of the list in TensorFlow's make_deterministic.cc, which leaves a pipeline of them parallel.
        assert stateful <= {"RangeDataset", "TensorSliceDataset", "TFRecordDatasetV2", "Assert", "_Retval"}
