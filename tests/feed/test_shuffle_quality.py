"""How well an epoch is mixed, against a full shuffle, where it matters most: of examples that lie sorted by class."""

import numpy as np
import pytest

from tasks.config import FeedConfig
from tasks.feed.feed import Feed
from tasks.prepare.manifest import OFFSET_STRIDE, Shard, SplitManifest

NUM_EXAMPLES, NUM_CLASSES, BATCH = 100_000, 100, 256


def large(manifest):
    """Returns the manifest as if its training split held many small examples; they are nowhere."""
    shard = Shard(
        file="train",
        num_examples=NUM_EXAMPLES,
        size_bytes=100 * NUM_EXAMPLES,
        record_bytes=100 * NUM_EXAMPLES,
        sha256="",
        offsets=tuple(range(0, 100 * NUM_EXAMPLES, 100 * OFFSET_STRIDE)),
    )
    split = SplitManifest(num_examples=NUM_EXAMPLES, class_counts=(NUM_EXAMPLES,), shards=(shard,))
    return manifest.model_copy(update={"splits": {"train": split}})


def quality(order):
    """Returns the mean distance of neighbours, the classes in a batch, and the share of neighbours of one class."""
    classes = order * NUM_CLASSES // NUM_EXAMPLES
    batches = classes[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
    num_classes = np.mean([len(set(batch)) for batch in batches.tolist()])
    return np.abs(np.diff(order)).mean(), num_classes, (np.diff(classes) == 0).mean()


@pytest.mark.parametrize(
    ("settings", "distance_of_full", "classes_of_full", "most_neighbours_of_one_class"),
    [({}, 0.97, 0.55, 0.03), ({"block": 64}, 0.98, 0.87, 0.016), ({"window": 4096}, 0.92, 0.18, 0.07)],
)
def test_an_epoch_is_mixed_nearly_as_a_full_shuffle_would(
    digits, settings, distance_of_full, classes_of_full, most_neighbours_of_one_class
):
    config = FeedConfig(global_batch_size=BATCH, cache="none", **settings)
    order = Feed(
        digits.shards.directory, large(digits.shards.manifest()), "train", config, seed=0, num_replicas=1
    ).order(0)
    assert np.array_equal(np.sort(order), np.arange(NUM_EXAMPLES))
    distance, num_classes, alike = quality(order)
    full_distance, full_classes, _ = quality(np.random.default_rng(0).permutation(NUM_EXAMPLES))
    assert distance > distance_of_full * full_distance
    assert num_classes > classes_of_full * full_classes
    assert alike < most_neighbours_of_one_class
