"""Several workers share the global batches of one, or, when asked, read files of their own."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.augmentation import Mixup
from tasks.config import FeedConfig, build_config
from tasks.download.download import download
from tasks.errors import ConfigError
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.share import plan_share
from tasks.prepare.manifest import Shard, SplitManifest
from tasks.prepare.prepare import prepare

BATCH, TRAIN = 50, 1437  # 28 full batches and one of 37


@pytest.fixture(scope="module")
def many_shards(digits):
    """The same digits in many small shards."""
    config = build_config(digits.config.model_dump(mode="json"), ["data.shard_size=40 KB", "data.shard_multiple=2"])
    raw = download(config.data, digits.workspace)
    return replace(digits, config=config, shards=prepare(config.name, config.data, raw, digits.workspace))


def make_feed(digits, *, workers=1, worker=0, replicas=4, **settings):
    config = FeedConfig(**{"global_batch_size": BATCH, "block": 64, "window": 400, **settings})
    return Feed(
        digits.shards.directory,
        digits.shards.manifest(),
        "train",
        config,
        seed=3,
        num_replicas=replicas,
        num_workers=workers,
        worker=worker,
    )


def slices_of_all(digits, workers, *, step, num_batches, replicas=4, **settings):
    """Returns the slices of all workers, batch by batch, in the order of the replicas."""
    feeds = [make_feed(digits, workers=workers, worker=w, replicas=replicas, **settings) for w in range(workers)]
    local = replicas // workers
    streams = [list(feed.training(step).take(num_batches * local).as_numpy_iterator()) for feed in feeds]
    return [
        part
        for batch in range(num_batches)
        for stream in streams
        for part in stream[batch * local : (batch + 1) * local]
    ]


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share_out_the_slices_of_one(digits, workers, cache):
    one = slices_of_all(digits, 1, step=20, num_batches=12, cache=cache)
    several = slices_of_all(digits, workers, step=20, num_batches=12, cache=cache)
    assert len(one) == len(several) == 48
    for mine, theirs in zip(one, several, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert np.array_equal(mine[name], theirs[name]), name


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_workers_mix_the_pairs_of_one(digits, kind):
    augment = [{"kind": "pad_crop", "pixels": 1}, {"kind": kind}]
    one = slices_of_all(digits, 1, step=26, num_batches=4, augment=augment)
    several = slices_of_all(digits, 2, step=26, num_batches=4, augment=augment)
    for mine, theirs in zip(one, several, strict=True):
        for name in mine:
            assert np.array_equal(mine[name], theirs[name]), name
    with pytest.raises(ConfigError) as refused:
        make_feed(digits, workers=4, global_batch_size=52, augment=augment)
    assert str(refused.value) == (
        "feed.global_batch_size=52: makes 13 rows for each of 4 workers, and feed.augment mixes rows in pairs; take 56"
    )


def test_workers_share_out_an_evaluation(digits):
    def feed(workers, worker):
        return evaluation_feed(
            digits.shards.directory,
            digits.shards.manifest(),
            "train",
            FeedConfig(block=64),
            batch_size=64,
            num_replicas=2,
            num_workers=workers,
            worker=worker,
        )

    def ids(workers, worker):
        elements = feed(workers, worker).one_pass().as_numpy_iterator()
        return np.concatenate([element["id"][element["mask"]] for element in elements])

    both = np.concatenate([ids(2, 0), ids(2, 1)])
    assert np.array_equal(np.sort(both), np.sort(ids(1, 0)))
    assert len(both) == TRAIN


def test_with_files_each_worker_shows_only_examples_of_its_own_and_an_epoch_is_as_long_for_all(many_shards):
    shards = many_shards.shards.manifest().splits["train"].shards
    first = [sum(shard.num_examples for shard in shards[:file]) for file in range(len(shards) + 1)]
    stored = stored_ids(many_shards)
    shown = []
    for worker in range(2):
        feed = make_feed(many_shards, workers=2, worker=worker, replicas=2, shard_policy="files")
        elements = list(feed.training(0).take(2 * feed.steps_per_epoch).as_numpy_iterator())
        assert feed.steps_per_epoch == min(part.sum() for part in own_sizes(shards)) // (BATCH // 2)
        assert all(part["mask"].all() and part["num_valid"] == BATCH for part in elements)
        assert {int(part["first_row"][0]) for part in elements} == {worker * BATCH // 2}
        own = np.concatenate([stored[first[f] : first[f + 1]] for f in range(worker, len(shards), 2)])
        epochs = np.stack([part["id"] for part in elements]).reshape(2, -1)
        for epoch in epochs:
            assert len(set(epoch)) == len(epoch)
            assert set(epoch) <= set(own)
        shown.append(epochs)
    assert not set(shown[0].ravel()) & set(shown[1].ravel())


def test_with_files_a_feed_started_anywhere_continues_the_same_sequence(many_shards):
    feed = make_feed(many_shards, workers=2, worker=1, replicas=2, shard_policy="files")
    whole = [part["id"] for part in feed.training(0).take(2 * feed.steps_per_epoch).as_numpy_iterator()]
    for step in (1, feed.steps_per_epoch - 1, feed.steps_per_epoch + 3):
        rest = [part["id"] for part in feed.training(step).take(len(whole) - step).as_numpy_iterator()]
        assert np.array_equal(rest, whole[step:])
        assert np.array_equal(feed.ids(step), whole[step])


@pytest.mark.parametrize(("policy", "batch", "least"), [("records", 1, 2), ("files", 2, 4)])
def test_a_batch_without_a_pair_to_mix_is_refused(many_shards, policy, batch, least):
    with pytest.raises(
        ConfigError, match=rf"feed.global_batch_size={batch}: .* mixes rows in pairs; take at least {least}"
    ):
        make_feed(many_shards, workers=2, replicas=2, shard_policy=policy, global_batch_size=batch, augment=[Mixup()])


def stored_ids(data):
    feed = evaluation_feed(
        data.shards.directory, data.shards.manifest(), "train", FeedConfig(block=64), batch_size=64, num_replicas=1
    )
    return np.concatenate([part["id"][part["mask"]] for part in feed.one_pass().as_numpy_iterator()])


def own_sizes(shards):
    sizes = np.array([shard.num_examples for shard in shards])
    return [sizes[worker::2] for worker in range(2)]


@pytest.mark.parametrize(
    ("sizes", "batch", "workers", "message"),
    [
        (
            [100],
            10,
            2,
            "feed.shard_policy=files: the train split has 1 shard(s) for 2 workers; write it anew with "
            "data.shard_multiple=2, or take feed.shard_policy=records",
        ),
        (
            [100, 100],
            10,
            4,
            "feed.shard_policy=files: the train split has 2 shard(s) for 4 workers; write it anew with "
            "data.shard_multiple=4, or take feed.shard_policy=records",
        ),
        (
            [100, 100],
            9,
            2,
            "feed.global_batch_size=9: with feed.shard_policy=files it must be a multiple of the 2 replicas, each of "
            "which takes its part from its worker's shards",
        ),
        (
            [100, 4],
            10,
            2,
            "feed.global_batch_size=10: with feed.shard_policy=files each of 2 workers takes 5 examples from its own "
            "shards, and one has only 4 of the train split; take a smaller batch or feed.shard_policy=records",
        ),
    ],
)
def test_shards_that_do_not_go_round_are_refused_with_the_numbers(sizes, batch, workers, message):
    shards = tuple(
        Shard(file=f"{i}", num_examples=size, size_bytes=1, record_bytes=1, sha256="", offsets=(0,))
        for i, size in enumerate(sizes)
    )
    split = SplitManifest(num_examples=sum(sizes), class_counts=(sum(sizes),), shards=shards)
    config = FeedConfig(global_batch_size=batch, shard_policy="files")
    with pytest.raises(ConfigError) as refused:
        plan_share(split, config, name="train", num_replicas=workers, num_workers=workers, worker=0)
    assert str(refused.value) == message
