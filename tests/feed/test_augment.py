"""Augmentation is a function of seed, epoch, example and place in the list, whoever reads the feed and from where."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.python.framework import op_def_registry

from tasks.augmentation import RandomResizedCrop
from tasks.config import build_config
from tasks.errors import ConfigError
from tasks.feed.augment import decode_window
from tasks.feed.feed import Feed, evaluation_feed
from tasks.feed.philox import philox, uniform
from tasks.feed.transforms import choose_windows
from tests.every_kind import FEATURES, make_example, write_every_kind

BATCH = 50  # 1437 digits: 28 full batches and one of 37 an epoch
EVERYTHING = [
    {"kind": "random_resized_crop"},
    {"kind": "flip", "vertical": True},
    {"kind": "pad_crop", "pixels": 2},
    {"kind": "color", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
    {"kind": "rand_augment", "num_ops": 1},
    {"kind": "cutout", "size": 2},
    {"kind": "mixup", "probability": 0.5},
    {"kind": "cutmix"},
]
SOME = [change for change in EVERYTHING if change["kind"] not in ("color", "rand_augment")]  # the digits are grey


def feed_config(augment, **settings):
    settings = {"global_batch_size": BATCH, "block": 64, "window": 400, **settings}
    return build_config({"name": "a", "feed": settings | {"augment": augment}}).feed


def make_feed(digits, augment=SOME, *, replicas=1, seed=3, **settings):
    config = feed_config(augment, **settings)
    return Feed(digits.shards.directory, digits.shards.manifest(), "train", config, seed=seed, num_replicas=replicas)


def rows(feed, step, num_batches, replicas=1):
    """Returns the columns of some batches without the padding."""
    elements = list(feed.training(step).take(num_batches * replicas).as_numpy_iterator())
    names = [name for name, value in elements[0].items() if np.ndim(value) and name not in ("mask", "first_row")]
    return {name: np.concatenate([each[name][each["mask"]] for each in elements]) for name in names}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert np.array_equal(value, right[name]), name


@pytest.fixture(scope="module")
def epochs(digits):
    """Two epochs on one replica, from files."""
    return rows(make_feed(digits, cache="none"), 0, 58)


@pytest.mark.parametrize("replicas", [2, 4])
def test_any_number_of_replicas_sees_the_same(digits, epochs, replicas):
    assert_same(rows(make_feed(digits, replicas=replicas), 0, 58, replicas), epochs)


@pytest.mark.parametrize("cache", ["memory", "none"])
@pytest.mark.parametrize("step", [7, 28, 44])
def test_a_feed_started_anywhere_continues_the_same_images(digits, epochs, cache, step):
    first = step * BATCH - (13 if step > 28 else 0)
    found = rows(make_feed(digits, cache=cache), step, 3)
    assert_same(found, {name: column[first : first + len(found["id"])] for name, column in epochs.items()})


def test_an_example_changes_from_epoch_to_epoch_and_examples_change_apart(digits):
    feed = make_feed(digits, [{"kind": "pad_crop", "pixels": 3}])
    both = rows(feed, 0, 58)
    first, second = (
        dict(zip(both["id"][part], both["image"][part], strict=True)) for part in (slice(0, 1437), slice(1437, None))
    )
    # One of 49 windows each: the same one is drawn again by 29 of 1437 examples, and some windows look alike.
    assert sum(np.array_equal(first[id], second[id]) for id in first) < 100
    other = rows(make_feed(digits, [{"kind": "pad_crop", "pixels": 3}], seed=4), 0, 29)
    assert sum(np.array_equal(first[id], image) for id, image in zip(other["id"], other["image"], strict=True)) < 100


def test_the_same_change_twice_in_the_list_is_drawn_twice(digits):
    plain, flipped_twice = (rows(make_feed(digits, [{"kind": "flip"}] * times), 0, 4)["image"] for times in (0, 2))
    is_mirrored = [not np.array_equal(*pair) for pair in zip(plain, flipped_twice, strict=True)]
    assert 70 < sum(is_mirrored) < 130  # of 200; none, if both draws were the same


def test_what_stands_behind_a_change_in_the_list_does_not_touch_its_draws(digits):
    nothing = {"kind": "random_resized_crop", "area": [1, 1], "ratio": [1, 1]}  # needs more numbers, and keeps all
    short, long = ([{"kind": "pad_crop", "pixels": 2}], [{"kind": "pad_crop", "pixels": 2}, nothing])
    assert_same(*(rows(make_feed(digits, augment), 0, 2) for augment in (short, long)))


def test_evaluation_and_one_pass_show_the_images_as_they_are(digits):
    plain, augmented = (
        evaluation_feed(
            digits.shards.directory,
            digits.shards.manifest(),
            "test",
            feed_config(augment),
            batch_size=64,
            num_replicas=1,
        )
        for augment in ([], SOME)
    )
    for left, right in zip(*(each.one_pass().as_numpy_iterator() for each in (plain, augmented)), strict=True):
        assert_same(left, right)


def test_nothing_that_augments_has_a_state_that_would_forbid_prefetching(tmp_path):
    shards = write_every_kind(tmp_path, {"train": 64})
    config = feed_config(EVERYTHING, image_size=[4, 4], augment_input="photo")
    dataset = Feed(shards.directory, shards.manifest(), "train", config, seed=5, num_replicas=2).training(0)
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    stateful = {node.op for node in nodes if op_def_registry.get(node.op).is_stateful}
    assert stateful <= {"RangeDataset", "TensorSliceDataset", "TFRecordDatasetV2", "Assert", "_Retval"}
    element = next(dataset.as_numpy_iterator())
    assert (element["photo"].shape, element["photo"].dtype) == ((25, 4, 4, 3), np.uint8)


def test_the_random_numbers_are_those_of_tensorflow():
    key, counter = 0x0123456789ABCDEF, (7, (5 << 40) + 9)

    def words(value):
        return tf.constant(value & 0xFFFFFFFF, tf.uint64), tf.constant(value >> 32, tf.uint64)

    expected = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[4], key=tf.constant([key], tf.uint64), counter=tf.constant(counter, tf.uint64), alg=1, dtype=tf.uint32
    )
    assert philox(words(key), (*words(counter[0]), *words(counter[1]))).numpy().tolist() == expected.numpy().tolist()


def test_the_random_numbers_are_uniform_and_independent():
    numbers = uniform(3, tf.constant(1, tf.int64), tf.range(20_000, dtype=tf.int64), num_streams=2, count=5).numpy()
    columns = numbers.reshape(20_000, 10)
    assert columns.min() >= 0
    assert columns.max() < 1
    assert np.abs(columns.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(columns.var(axis=0) * 12 - 1).max() < 0.03
    neighbours = np.concatenate([columns, np.roll(columns, 1, axis=0)], axis=1)
    assert np.abs(np.corrcoef(neighbours.T) - np.eye(20)).max() < 0.03


@pytest.mark.parametrize("form", ["PNG", "JPEG 4:4:4", "JPEG 4:2:0"])
def test_decoding_a_window_is_decoding_all_and_cutting_it(form):
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    file = io.BytesIO()
    options = {"subsampling": form[5:]} if form != "PNG" else {}
    coarse.resize((160, 120), Image.Resampling.BICUBIC).save(file, form[:4].strip(), **options)
    encoded = file.getvalue()
    whole = tf.io.decode_png(encoded) if form == "PNG" else tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE")
    change = RandomResizedCrop(area=(0.2, 1))
    # Where two pixels share a colour, that of the outermost column is made without its neighbour beyond the edge.
    inside = slice(2, -2) if form == "JPEG 4:2:0" else slice(None)
    for numbers in tf.constant(rng.random((20, 22)), tf.float32):
        top, left, tall, wide = choose_windows(numbers, tf.constant([120, 160]), change).numpy()
        window = tf.image.resize(whole[top : top + tall, left : left + wide], [24, 24], antialias=True)
        found = decode_window(tf.constant(encoded), numbers, change, height=24, width=24, channels=3).numpy()
        assert np.array_equal(found[:, inside], np.round(window.numpy())[:, inside])


def test_the_feed_decodes_the_window_of_each_example(tmp_path):
    shards = write_every_kind(tmp_path, {"train": 64})
    change = RandomResizedCrop(area=(0.3, 1))
    nothing = {"kind": "mixup", "probability": 0}
    config = feed_config([change.model_dump(), nothing], image_size=[4, 4], augment_input="photo", global_batch_size=64)
    found = rows(Feed(shards.directory, shards.manifest(), "train", config, seed=5, num_replicas=1), 1, 1)
    ids = tf.constant(found["id"])
    numbers = uniform(5, tf.constant(1, tf.int64), ids, num_streams=1, count=22)[:, 0]
    for id, image, drawn in zip(found["id"], found["photo"], numbers, strict=True):
        encoded = tf.constant(make_example(int(id))["photo"])
        assert np.array_equal(image, decode_window(encoded, drawn, change, height=4, width=4, channels=3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"augment": [{"kind": "flip"}]},
            "feed.augment: needs an input .* and the inputs that are images are pixels, photo; name",
        ),
        ({"augment_input": "vector"}, r"feed.augment_input='vector': must be an encoded image or a tensor"),
        (
            {"augment": [{"kind": "pad_crop"}], "augment_input": "photo"},
            r"feed.augment.0.pixels=4: photo of 4x4 pixels",
        ),
        (
            {"augment": [{"kind": "flip"}, {"kind": "color", "hue": 0.1}], "augment_input": "pixels"},
            r"feed.augment.1: pixels is grey",
        ),
    ],
)
def test_changes_that_do_not_fit_are_refused(tmp_path, settings, message):
    shards = write_every_kind(tmp_path, {"train": 64})
    config = feed_config(**{"augment": [{"kind": "flip"}], "image_size": [4, 4], **settings})
    with pytest.raises(ConfigError, match=message):
        Feed(shards.directory, shards.manifest(), "train", config, seed=0, num_replicas=1)


def test_what_needs_a_range_of_values_is_refused_for_floats(tmp_path):
    shards = write_every_kind(tmp_path, {"train": 64})
    pixels = FEATURES["pixels"].model_copy(update={"dtype": "float32"})
    manifest = shards.manifest().model_copy(update={"features": FEATURES | {"pixels": pixels}})
    for kind in ("color", "rand_augment"):
        config = feed_config([{"kind": kind}], image_size=[4, 4], augment_input="pixels")
        with pytest.raises(ConfigError, match=f"feed.augment.0: {kind} needs an image of uint8"):
            Feed(shards.directory, manifest, "train", config, seed=0, num_replicas=1)
