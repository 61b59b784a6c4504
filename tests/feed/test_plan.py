"""The plan of a feed: a table of plain cases, exact, with no file and no TensorFlow."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.host_facts import HostFacts, medium_of
from tasks.feed.plan import plan_feed
from tasks.prepare.manifest import Feature, FeatureStatistics, Shard, ShardManifest, SplitManifest

GB = 10**9
HOST = HostFacts(memory_bytes=64 * GB, num_cores=4, medium="local", free_disk_bytes=500 * GB)
LABEL_AND_ID = 16


def manifest(num_examples: int, record_bytes: int, **features: Feature) -> ShardManifest:
    """Returns the manifest of one shard."""
    size_bytes = num_examples * record_bytes
    shard = Shard(
        file="a",
        num_examples=num_examples,
        size_bytes=size_bytes,
        record_bytes=size_bytes,
        sha256="0",
        offsets=(0,),
    )
    return ShardManifest(
        name="any",
        version="1.0.0",
        data_digest="d",
        source_digest="s",
        seed=0,
        offset_stride=64,
        compression="none",
        inputs=tuple(features),
        target="label",
        id="id",
        features=features | {"label": Feature.of("label", "int64"), "id": Feature.of("id", "int64")},
        label_map=("a", "b"),
        splits={"train": SplitManifest(num_examples=num_examples, class_counts=(1, 1), shards=(shard,))},
        statistics={},
        config={},
        num_bad=0,
        notes=(),
        code_version="0",
    )


def tensors(num_examples: int) -> ShardManifest:
    """Returns the manifest of examples that are 1,000 bytes decoded, 1,100 in the shards."""
    return manifest(num_examples, 1_100, x=Feature.of("tensor", "uint8", (1000 - LABEL_AND_ID,)))


def pixels(num_examples: int) -> ShardManifest:
    """Returns the manifest of images of 984 bytes that are stored decoded."""
    return manifest(num_examples, 1_100, x=Feature.of("tensor", "uint8", (8, 41, 3)))


def images(num_examples: int) -> ShardManifest:
    """Returns the manifest of images of 20 KB, which are 30,016 bytes decoded to 100 x 100."""
    return manifest(num_examples, 20_000, x=Feature.of("image", "string", (None, None, 3)))


FLIP = {"kind": "flip"}
WINDOWS = [{"kind": "random_resized_crop"}]


def feed_config(**settings: object) -> FeedConfig:
    return FeedConfig.model_validate({"image_size": (100, 100), "window": 1280, "global_batch_size": 100} | settings)


@pytest.mark.parametrize(
    ("shards", "settings", "host", "cache", "reason"),
    [
        (tensors(10**6), {}, HOST, ("decoded", GB), "1.0 GB are within half of feed.memory_limit"),
        (tensors(10**6 + 1), {}, HOST, ("none", 0), "1.0 GB are over half of feed.memory_limit"),
        (tensors(10**6 + 1), {"memory_limit": "3 GB"}, HOST, ("decoded", GB + 1000), "1.0 GB are within"),
        (tensors(10**6), {}, replace(HOST, memory_bytes=GB), ("none", 0), "1.0 GB are over half of the memory here"),
        (images(33_000), {}, HOST, ("decoded", 33_000 * 30_016), "990.5 MB are within half of feed.memory_limit"),
        (images(40_000), {}, HOST, ("disk", 40_000 * 30_016), "1.2 GB decoded are over half of feed.memory_limit"),
        (images(40_000), {}, replace(HOST, medium="network"), ("memory", 40_000 * 20_056), "1.2 GB decoded are not"),
        (images(40_000), {}, replace(HOST, medium="memory"), ("memory", 40_000 * 20_056), "802.2 MB as stored"),
        (images(40_000), {}, replace(HOST, free_disk_bytes=2 * GB), ("memory", 40_000 * 20_056), "802.2 MB as stored"),
        (images(60_000), {}, replace(HOST, medium="network"), ("none", 0), "1.2 GB are over half of feed.memory_limit"),
        (images(2_000_000), {}, HOST, ("none", 0), "40.1 GB are over half of feed.memory_limit"),  # of 32 GB of pages
        (tensors(10), {"memory_limit": "5 MB"}, HOST, ("none", 0), "to fill one takes 3.0 MB, over the 2.5 MB"),
        (tensors(10), {"cache": "none"}, HOST, ("none", 0), "as asked for"),
        (tensors(10), {"cache": "memory"}, HOST, ("memory", 10 * 1156), "as asked for"),
        (tensors(10**7), {"cache": "disk"}, HOST, ("disk", 10 * GB), "as asked for"),
        (tensors(10), {"service": "grpc://there:5050"}, HOST, ("none", 0), "the hosts of feed.service read the shards"),
        (images(10), {"augment": WINDOWS}, HOST, ("memory", 10 * 20_056), "every epoch decodes other windows"),
        (images(10), {"augment": [FLIP, *WINDOWS]}, HOST, ("decoded", 10 * 30_016), "are within half"),
        (pixels(10), {"augment": WINDOWS}, HOST, ("decoded", 10_000), "are within half"),
        (images(60_000), {"cache": "decoded", "memory_limit": "2 GB"}, HOST, ("decoded", 60_000 * 30_016), "as asked"),
    ],
)
def test_the_cache_is_the_quickest_that_fits(shards, settings, host, cache, reason):
    plan = plan_feed(shards, "train", feed_config(**settings), host)
    assert (plan.cache, plan.cache_bytes) == cache
    assert plan.reasons[0].startswith(f"cache {plan.cache}")
    assert reason in plan.reasons[0]
    assert plan.memory_bytes <= feed_config(**settings).memory_limit.size_bytes


@pytest.mark.parametrize(
    ("shards", "settings", "cache", "reason"),
    [
        (tensors(8 * 10**5), {}, "memory", "one pass gains nothing from decoding ahead"),
        (images(40_000), {}, "memory", "one pass gains nothing from decoding ahead"),
        (tensors(10**7), {}, "none", "over half of feed.memory_limit"),
        (
            manifest(10**6, 2000, x=Feature.of("number", "int64")),
            {},
            "none",
            "2.1 GB are over",
        ),  # 20 MB decoded are not
        (tensors(10**6), {"cache": "decoded"}, "decoded", "as asked for"),
        (tensors(10**7), {"cache": "decoded"}, "none", "because decoded of 10.0 GB is over the 1.0 GB for a cache"),
    ],
)
def test_an_evaluation_decodes_nothing_ahead_unless_asked(shards, settings, cache, reason):
    plan = plan_feed(shards, "train", feed_config(**settings), HOST, evaluation=True)
    assert plan.cache == cache
    assert reason in plan.reasons[0]


@pytest.mark.parametrize(
    ("shards", "settings", "calls", "ahead", "reasons"),
    [
        (tensors(10), {}, 1, 4, ("its rows are only copied", "enough to level out")),
        (tensors(10), {"cache": "none"}, 4, 4, ("one a core", "enough to level out")),
        (tensors(10), {"parallel_calls": 7, "prefetch_batches": 9}, 7, 9, ("as asked for", "as asked for")),
        (tensors(10), {"service": "grpc://here:5050"}, 4, 4, ("one a core", "enough to level out")),
        (images(10), {"augment": [{"kind": "flip"}]}, 4, 4, ("one a core", "enough to level out")),
        (  # 30 MB a batch that is ready, 50 MB one that is being decoded; 84 MB are the window's
            images(2_000_000),
            {"global_batch_size": 1000, "window": 1400, "memory_limit": "400 MB"},
            3,
            3,
            ("more of 50.0 MB would be over feed.memory_limit", "more of 30.0 MB would be over feed.memory_limit"),
        ),
    ],
)
def test_as_much_is_done_at_once_as_cores_and_memory_allow(shards, settings, calls, ahead, reasons):
    plan = plan_feed(shards, "train", feed_config(**settings), HOST)
    assert (plan.parallel_calls, plan.prefetch_batches) == (calls, ahead)
    assert reasons[0] in plan.reasons[1]
    assert reasons[1] in plan.reasons[2]


def test_the_memory_is_that_of_cache_window_and_batches():
    plan = plan_feed(tensors(10**7), "train", feed_config(), HOST)
    window, at_once, ahead, held = 3 * 1280 * 1100, 4 * 100 * 2100, 4 * 100 * 1000, 2 * 100 * 1000
    assert plan.memory_bytes == window + at_once + ahead + held
    cached = plan_feed(tensors(10**6), "train", feed_config(), HOST)
    rows = (10**6 + 3 * 1280) * 8
    assert cached.memory_bytes == GB + rows + 4 * 3 * 10**6  # to fill it takes more than batches do


def test_images_being_decoded_count_at_their_full_size():
    sizes = {"x.height": FeatureStatistics(mean=500.0), "x.width": FeatureStatistics(mean=300.0)}
    plain = plan_feed(images(10), "train", feed_config(cache="none"), HOST)
    measured = images(10).model_copy(update={"statistics": sizes})
    plan = plan_feed(measured, "train", feed_config(cache="none"), HOST)
    assert plan.memory_bytes - plain.memory_bytes == 4 * 32 * 500 * 300 * 3


@pytest.mark.parametrize(
    ("augment", "copies"),
    [([FLIP], 4), ([FLIP, {"kind": "mixup"}], 16), (WINDOWS, 0), ([*WINDOWS, FLIP], 4), ([FLIP, *WINDOWS], 16)],
)
def test_images_being_changed_count_as_often_as_they_are_held(augment, copies):
    """In bytes of uint8; what mixes or resizes does so in float32, and a window that stands first is only decoded."""
    plain, changed = (
        plan_feed(images(10**6), "train", feed_config(cache="none", augment=some), HOST) for some in ([], augment)
    )
    assert changed.memory_bytes - plain.memory_bytes == 4 * 100 * copies * 30_000


def test_what_fills_a_cache_counts_its_images_at_full_size_and_rows_that_are_copied_none():
    sizes = {"x.height": FeatureStatistics(mean=500.0), "x.width": FeatureStatistics(mean=300.0)}
    measured = images(33).model_copy(update={"statistics": sizes})
    plan = plan_feed(measured, "train", feed_config(), HOST)
    assert plan.cache == "decoded"
    assert plan.memory_bytes == 33 * 30_016 + 4 * 33 * 8 + 4 * (3 * 10**6 + 32 * 500 * 300 * 3)


@pytest.mark.parametrize(
    ("shards", "settings", "cache", "reason"),
    [
        (tensors(10**6), {"global_batch_size": 200_000}, "none", "1.0 GB are over what batches leave"),
        (tensors(10**6), {"prefetch_batches": 9_999}, "none", "1.0 GB are over what batches leave"),
        (images(10_000), {"global_batch_size": 8_000}, "decoded", "300.2 MB are within what batches leave"),
        (images(30_000), {"global_batch_size": 8_000}, "memory", "601.7 MB as stored are within what batches leave"),
    ],
)
def test_batches_that_need_more_than_half_leave_less_to_a_cache_and_are_not_refused(shards, settings, cache, reason):
    plan = plan_feed(shards, "train", feed_config(**settings), replace(HOST, medium="network"))
    assert plan.cache == cache
    assert reason in plan.reasons[0]
    assert plan.memory_bytes <= 2 * GB


def test_the_plan_is_said_in_one_line():
    assert plan_feed(tensors(10**6), "train", feed_config(), HOST).line() == (
        "feed: cache decoded: 1.0 GB are within half of feed.memory_limit; 1 batch at once: its rows are only copied; "
        "4 batches ahead: enough to level out a slow step of the feed; 1.0 GB of memory at most"
    )


def test_what_keeps_decoded_pixels_is_refused_where_every_epoch_decodes_others():
    with pytest.raises(ConfigError) as refused:
        plan_feed(images(10), "train", feed_config(augment=WINDOWS, cache="disk"), HOST)
    assert str(refused.value) == (
        "feed.cache=disk: keeps what was decoded, and feed.augment begins with random_resized_crop, which decodes "
        "another window of each image in every epoch; take feed.cache=memory, or auto"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"cache": "decoded"},
            "feed.cache=decoded: its 10.0 GB with window and batches: 10.1 GB of memory are needed, over "
            "feed.memory_limit=2 GB; take feed.cache=auto or raise it",
        ),
        (
            {"window": 10**6},
            "feed.window=1000000 examples of 1.1 KB and batches of 100: 3.3 GB of memory are needed, over "
            "feed.memory_limit=2 GB; use at most feed.window=605906, or raise the limit",
        ),
        (
            {"global_batch_size": 10**6},
            "feed.window=1280 examples of 1.1 KB and batches of 1000000: 5.1 GB of memory are needed, over "
            "feed.memory_limit=2 GB; use a smaller feed.global_batch_size, or raise the limit",
        ),
    ],
)
def test_what_cannot_fit_is_refused_with_the_numbers(settings, message):
    with pytest.raises(ConfigError) as caught:
        plan_feed(tensors(10**7), "train", feed_config(**settings), HOST)
    assert str(caught.value) == message


def test_the_window_that_is_advised_fits():
    plan = plan_feed(tensors(10**7), "train", feed_config(window=605906), HOST)
    assert plan.memory_bytes <= 2 * GB


MOUNTS = r"""overlay / overlay rw 0 0
tmpfs /run/user tmpfs rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sda1 /home/local ext4 rw 0 0
bucket /mnt/my\040bucket fuse.gcsfuse rw 0 0
/dev/sdb1 /data ext4 rw 0 0
server:/data /data nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "medium"),
    [
        ("/opt/data", "local"),
        ("/run/user/data", "memory"),
        ("/home/me/data", "network"),
        ("/home/local/data", "local"),
        ("/homes", "local"),
        ("/mnt/my bucket/data", "network"),
        ("/data/x", "network"),  # mounted over what was there
    ],
)
def test_the_medium_is_that_of_the_innermost_mount(path, medium):
    assert medium_of(Path(path), MOUNTS) == medium
    assert medium_of(Path(path), "") == "local"
