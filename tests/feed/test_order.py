"""The order of examples is a pure function of seed, epoch and manifest, and a feed starts anywhere in it."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.config import FeedConfig
from tasks.download.download import download
from tasks.errors import ConfigError
from tasks.feed.blocks import cut_blocks, shuffle_blocks
from tasks.feed.feed import Feed, evaluation_feed
from tasks.prepare.prepare import prepare

BATCH = 50  # 1437 training examples: 28 full batches and one of 37


def make_feed(digits, *, replicas=1, seed=3, microbatch=None, **settings):
    config = FeedConfig(**{"global_batch_size": BATCH, "block": 64, "window": 400, **settings})
    manifest = digits.shards.manifest()
    return Feed(
        digits.shards.directory, manifest, "train", config, seed=seed, num_replicas=replicas, microbatch=microbatch
    )


def valid_ids(elements):
    return np.concatenate([element["id"][element["mask"]] for element in elements])


def ids_from(feed, step, num_batches, replicas=1):
    return valid_ids(feed.training(step).take(num_batches * replicas).as_numpy_iterator())


def stored_ids(digits, split="train"):
    feed = evaluation_feed(
        digits.shards.directory, digits.shards.manifest(), split, FeedConfig(block=64), batch_size=64, num_replicas=1
    )
    return valid_ids(feed.one_pass().as_numpy_iterator())


@pytest.mark.parametrize("cache", ["decoded", "memory", "none"])
def test_every_epoch_shows_each_example_once_in_the_order_of_the_oracle(digits, cache):
    feed = make_feed(digits, cache=cache)
    stored = stored_ids(digits)
    ids = ids_from(feed, 0, 2 * feed.steps_per_epoch)
    epochs = ids.reshape(2, -1)
    for epoch in range(2):
        assert np.array_equal(epochs[epoch], stored[feed.order(epoch)])
        assert np.array_equal(np.sort(epochs[epoch]), np.sort(stored))
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_share_out_the_same_global_batches(digits, replicas):
    one = ids_from(make_feed(digits), 0, 29)
    assert np.array_equal(ids_from(make_feed(digits, replicas=replicas), 0, 29, replicas), one)


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("step", [1, 7, 8, 15, 28, 29, 44])
def test_a_feed_started_anywhere_continues_the_same_sequence(digits, cache, step):
    feed = make_feed(digits, cache=cache)
    epoch, batch = divmod(step, feed.steps_per_epoch)
    expected = stored_ids(digits)[np.concatenate([feed.order(epoch)[batch * BATCH :], feed.order(epoch + 1)])]
    num_examples = sum(37 if (step + i) % 29 == 28 else BATCH for i in range(5))
    assert np.array_equal(ids_from(feed, step, 5), expected[:num_examples])


@pytest.mark.parametrize("step", [0, 28, 30])
def test_the_ids_of_a_step_are_those_of_its_batch_without_the_padding(digits, step):
    feed = make_feed(digits, replicas=4)
    epoch, batch = divmod(step, 29)
    expected = stored_ids(digits)[feed.order(epoch)[batch * BATCH : (batch + 1) * BATCH]]
    assert np.array_equal(feed.ids(step), expected)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_microbatches_of_all_replicas_hold_the_same_examples_on_any_number_of_them(digits, replicas):
    feed = make_feed(digits, replicas=replicas, microbatch=16 // replicas)
    assert (feed.num_microbatches, feed.rows_at_once) == (4, 16), "64 places for 50 examples"
    for step in (27, 28):
        parts = list(feed.training(step).take(replicas).as_numpy_iterator())
        rows = np.concatenate([np.split(part["id"], 4) for part in parts], axis=1)  # [microbatch, replica * row]
        first = np.stack([part["first_row"] for part in parts], axis=1)
        assert np.array_equal(first, np.arange(0, 64, 16 // replicas).reshape(4, replicas))
        mask = np.concatenate([np.split(part["mask"], 4) for part in parts], axis=1)
        assert np.array_equal(rows.ravel()[mask.ravel()], feed.ids(step)), "in the order of the global batch"
        assert np.array_equal(mask.ravel(), np.arange(64) < (37 if step == 28 else BATCH))


def test_a_short_last_batch_is_padded_and_masked(digits):
    last = list(make_feed(digits, replicas=4).training(28).take(4).as_numpy_iterator())
    assert [element["mask"].sum() for element in last] == [13, 13, 11, 0]
    assert [element["first_row"] for element in last] == [0, 13, 26, 39]
    assert {int(element["num_valid"]) for element in last} == {37}
    assert all(element["image"].shape == (13, 8, 8, 1) and element["image"].dtype == np.uint8 for element in last)
    # Copies, because zeros are no image: dividing by their norm gives NaN, and NaN survives a mask in the gradient.
    assert all(np.array_equal(image, last[2]["image"][10]) for image in last[3]["image"])


def test_drop_leaves_the_short_last_batch_out(digits):
    feed = make_feed(digits, last_batch="drop")
    assert feed.steps_per_epoch == 28
    elements = list(feed.training(0).take(29).as_numpy_iterator())
    assert all(element["mask"].all() for element in elements)
    assert np.array_equal(elements[28]["id"], stored_ids(digits)[feed.order(1)[:BATCH]])


def test_another_seed_gives_another_order(digits):
    assert not np.array_equal(make_feed(digits, seed=3).order(0), make_feed(digits, seed=4).order(0))


def test_splits_are_disjoint_and_whole(digits):
    ids = np.concatenate([stored_ids(digits, split) for split in ("train", "validation", "test")])
    assert np.array_equal(np.sort(ids), np.arange(1797))


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_compressed_shards_are_shuffled_whole_and_started_anywhere(digits, tmp_path, cache):
    data = digits.config.data.model_copy(update={"compression": "gzip"})
    compressed = replace(digits, shards=prepare("digits", data, download(data, tmp_path), tmp_path))
    assert set(cut_blocks(compressed.shards.manifest(), "train", block=64).count) <= {359, 360}
    feed = make_feed(compressed, cache=cache)
    stored = stored_ids(compressed)
    assert np.array_equal(stored, stored_ids(digits))
    expected = stored[np.concatenate([feed.order(0)[11 * BATCH :], feed.order(1)])]
    assert np.array_equal(ids_from(feed, 11, 18 + 29), expected)


def test_blocks_cut_anywhere_keep_the_rest_of_the_sequence(digits):
    blocks = shuffle_blocks(cut_blocks(digits.shards.manifest(), "train", block=64), seed=1, epoch=2)
    for example in (0, 1, 63, 64, 700, 1436, 1437):
        assert np.array_equal(blocks.start_at(example).rows(), blocks.rows()[example:])


def test_the_shuffle_mixes_nearly_as_well_as_a_full_one(digits):
    order = make_feed(digits, window=2048).order(0)
    full = np.random.default_rng(0).permutation(len(order))
    assert np.abs(np.diff(order)).mean() > 0.95 * np.abs(np.diff(full)).mean()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block": 100}, "feed.block=100: must be a multiple of 64"),
        (
            {"window": 128},
            "feed.window=128: must hold at least 5 blocks of feed.block=64 to mix the 1437 examples; take",
        ),
        (
            {"global_batch_size": 2000, "last_batch": "drop"},
            "feed.global_batch_size=2000: the train split has only 1437",
        ),
        ({"memory_limit": "100 KB"}, "over feed.memory_limit=100 KB; use at most feed.window="),
        ({"memory_limit": "100 KB", "cache": "decoded"}, "feed.cache=decoded: its"),
    ],
)
def test_a_feed_that_cannot_be_is_refused_with_the_numbers(digits, settings, message):
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        make_feed(digits, **settings)
