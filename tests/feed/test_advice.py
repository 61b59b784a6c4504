"""The sentence that a training or a bench gives when the feed is short, word for word."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tasks.config import DataConfig, FeedConfig
from tasks.download.download import download
from tasks.feed.advice import FeedFacts, advise_on_stages, advise_on_wait, feed_facts
from tasks.prepare.prepare import prepare
from tasks.sources import ImageFolderSource

PLAIN = FeedFacts(
    images=False, large=False, short_side=None, cached=False, compressed=False, size_bytes=2_500_000_000, cores=8
)
PHOTOS = replace(PLAIN, images=True, large=True, short_side=224)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            PHOTOS,
            "20% of the step time is a wait for input, most likely for the stage decode on 8 cores: resize the images "
            "once, when they are sharded (data.source.store=jpeg data.source.short_side=224)",
        ),
        (
            replace(PHOTOS, short_side=None, cached=True, cores=1),
            "20% of the step time is a wait for input, most likely for the stage decode on 1 core: have the images "
            "resized to about feed.image_size before they are sharded",
        ),
        (
            replace(PHOTOS, large=False),
            "20% of the step time is a wait for input, most likely for the stage decode on 8 cores: add cores",
        ),
        (
            PLAIN,
            "20% of the step time is a wait for input, most likely for the stage read on 8 cores: keep the split in "
            "memory (feed.cache=memory, about 2.5 GB), or add cores",
        ),
        (
            replace(PLAIN, compressed=True),
            "20% of the step time is a wait for input, most likely for the stage read on 8 cores: write the shards "
            "without compression (data.compression=none)",
        ),
        (
            replace(PLAIN, cached=True, changes=True),
            "20% of the step time is a wait for input, most likely for the stage decode on 8 cores: add cores, or take "
            "less of feed.augment, which is another training",
        ),
        (
            replace(PLAIN, cached=True, cores=2),
            "20% of the step time is a wait for input, most likely for the stage batch on 2 cores: handing a batch "
            "over takes long beside a step, so take a larger feed.global_batch_size, which is another training, or "
            "leave more cores to the feed",
        ),
    ],
)
def test_a_training_that_waits_is_told_the_likely_stage_and_what_to_do(facts, sentence):
    assert advise_on_wait(0.2, facts) == sentence


def test_a_training_that_hardly_waits_is_told_nothing():
    assert advise_on_wait(0.05, PHOTOS) is None
    assert advise_on_wait(0.051, PHOTOS) is not None


def test_a_bench_is_told_the_stage_that_takes_most():
    seconds = {"read": 1.0, "parse": 6.0, "decode": 2.0, "batch": 1.0}
    assert advise_on_stages(seconds, replace(PLAIN, size_bytes=4_200_000)) == (
        "parse takes 60% of the feed's CPU time: keep the split in memory (feed.cache=memory, about 4.2 MB), or add "
        "cores"
    )
    assert advise_on_stages({**seconds, "batch": 90.0}, PLAIN) == (
        "batch takes 91% of the feed's CPU time: keep the split in memory (feed.cache=memory, about 2.5 GB), or add "
        "cores"
    )
    assert advise_on_stages({**seconds, "decode": 90.0}, PHOTOS) == (
        "decode takes 92% of the feed's CPU time: resize the images once, when they are sharded "
        "(data.source.store=jpeg data.source.short_side=224)"
    )
    assert advise_on_stages({**seconds, "decode": 90.0}, PLAIN) == "decode takes 92% of the feed's CPU time: add cores"


def test_the_facts_of_the_digits_are_those_of_tensors(digits):
    manifest = digits.shards.manifest()
    size = sum(shard.record_bytes for shard in manifest.splits["train"].shards)
    facts = feed_facts(manifest, digits.config.feed, cache="memory", cores=2)
    assert facts == replace(PLAIN, cached=True, size_bytes=size, cores=2)


def test_images_are_large_until_they_were_resized_when_sharded(tmp_path):
    for number in range(20):
        file = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((30, 40, 3), number, np.uint8)).save(file)

    def facts(**settings):
        data = DataConfig(source=ImageFolderSource(path=str(tmp_path / "photos"), **settings))
        manifest = prepare("photos", data, download(data, tmp_path), tmp_path).manifest()
        return feed_facts(manifest, FeedConfig(image_size=(12, 16)), cache="none", cores=2)

    whole = facts()
    assert (whole.images, whole.large, whole.short_side) == (True, True, 16)
    assert not facts(store="jpeg", short_side=16).large
