"""What a model sees is a function of what is stored, of the manifest and of the feed's settings: exact values."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess, decode_image, input_names
from tasks.prepare.manifest import FeatureStatistics
from tasks.texts import BytesText, WordsText
from tests.every_kind import FEATURES, INPUTS, STATISTICS, make_example, manifest_of, serialize

CONFIG = FeedConfig(image_size=(4, 4), text=BytesText(length=6))
WORDS = CONFIG.model_copy(update={"text": WordsText(max_words=4)})
QUANTILES = {"0.01": 0.0, "0.05": 2.0, "0.95": 6.0, "0.99": 9.0}


def preprocessed(*, manifest=None, config=CONFIG, **columns):
    """Returns the inputs of examples that have `columns`, and for the rest what example 0 has."""
    count = len(next(iter(columns.values())))
    examples = [make_example(0) | {name: values[row] for name, values in columns.items()} for row in range(count)]
    preprocess = Preprocess(manifest or manifest_of({}), config)
    parsed = parse_batch(tf.constant([serialize(example) for example in examples]), FEATURES, preprocess.names)
    return {name: value.numpy() for name, value in preprocess(parsed).items()}


def encoded(pixels, form="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def decoded(data, height, width, channels=3):
    return decode_image(tf.constant(data), height=height, width=width, channels=channels).numpy()


def test_inputs_are_what_comes_out_and_no_strings():
    preprocess = Preprocess(manifest_of({}), CONFIG)
    inputs = {name: (value.shape[1:], value.dtype.name) for name, value in preprocessed(label=[0, 1]).items()}
    assert preprocess.inputs == inputs
    assert inputs == {
        "pixels": ((2, 2, 1), "uint8"),
        "vector": ((3,), "float32"),
        "photo": ((4, 4, 3), "uint8"),
        "comment": ((6,), "uint8"),
        "colour": ((4,), "float32"),
        "weight_g": ((1,), "float32"),
        "count": ((1,), "float32"),
        "colour_missing": ((1,), "float32"),
        "weight_g_missing": ((1,), "float32"),
    }


def test_what_goes_in_is_what_is_stored():
    assert Preprocess(manifest_of({}), CONFIG).stored == {
        "pixels": ((2, 2, 1), "uint8"),
        "vector": ((3,), "float32"),
        "photo": ((), "string"),
        "comment": ((), "string"),
        "colour": ((), "string"),
        "weight_g": ((), "float64"),
        "count": ((), "int64"),
        "colour_missing": ((), "int64"),
        "weight_g_missing": ((), "int64"),
    }


def test_a_tensor_is_as_it_is():
    vectors = np.array([[0.1, -2, 3e8], [1, 2, 3]], np.float32)
    pixels = np.array([[[[0], [255]], [[1], [2]]]] * 2, np.uint8)
    found = preprocessed(vector=vectors, pixels=pixels)
    assert np.array_equal(found["vector"], vectors)
    assert np.array_equal(found["pixels"], pixels)


def test_a_category_is_one_hot_and_unknown_or_missing_ones_share_place_0():
    found = preprocessed(
        colour=[b"red", "grün".encode(), b"blue", b"never seen", b"", b"red"],
        colour_missing=[0, 0, 0, 0, 0, 1],  # a missing value counts as missing, whatever stands in its place
    )
    assert found["colour"].argmax(axis=1).tolist() == [1, 2, 3, 0, 0, 0]
    assert np.array_equal(found["colour"].sum(axis=1), np.ones(6))
    assert found["colour_missing"].tolist() == [[0], [0], [0], [0], [0], [1]]


def test_only_the_most_frequent_categories_have_places():
    vocabulary = tuple((f"c{number}", 3) for number in range(1001))
    many = manifest_of({}, statistics=STATISTICS | {"colour": FeatureStatistics(vocabulary=vocabulary)})
    found = preprocessed(manifest=many, colour=[b"c0", b"c999", b"c1000"])["colour"]
    assert found.shape == (3, 1001)
    assert found.argmax(axis=1).tolist() == [1, 1000, 0]
    few = CONFIG.model_copy(update={"max_categories": 2})
    found = preprocessed(manifest=many, config=few, colour=[b"c0", b"c1", b"c2"])["colour"]
    assert found.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


def test_a_category_that_is_missing_in_all_of_the_training_split_has_one_place():
    empty = manifest_of({}, statistics=STATISTICS | {"colour": FeatureStatistics(num_missing=9, vocabulary=())})
    assert preprocessed(manifest=empty, colour=[b"red", b""])["colour"].tolist() == [[1], [1]]


def test_a_number_is_normalised_and_a_missing_one_is_0():
    found = preprocessed(
        **{"weight (g)": [1.5, 2.0, -1.0, 0.0], "weight (g)_missing": [0, 0, 0, 1], "count": [4, 0, 9, 5]}
    )
    assert found["weight_g"].tolist() == [[0], [1], [-5], [0]]
    assert found["weight_g_missing"].tolist() == [[0], [0], [0], [1]]
    assert found["count"].tolist() == [[0], [-2], [2.5], [0.5]]


def test_a_large_number_keeps_its_digits_until_its_mean_is_taken_off():
    seconds = 1_700_000_000
    times = manifest_of({}, statistics=STATISTICS | {"count": FeatureStatistics(mean=float(seconds), std=1.0)})
    assert preprocessed(manifest=times, count=[seconds, seconds + 1])["count"].tolist() == [[0], [1]]


@pytest.mark.parametrize("statistics", [FeatureStatistics(mean=7, std=0), FeatureStatistics(mean=None, std=None)])
def test_a_number_that_never_varies_is_not_divided_by_zero(statistics):
    constant = manifest_of({}, statistics=STATISTICS | {"count": statistics})
    assert preprocessed(manifest=constant, count=[7])["count"].tolist() == [[7 - (statistics.mean or 0)]]


def test_a_number_is_held_between_quantiles_before_it_is_normalised():
    count = STATISTICS["count"].model_copy(update={"quantiles": QUANTILES})
    known = manifest_of({}, statistics=STATISTICS | {"count": count})
    config = CONFIG.model_copy(update={"clip_quantiles": (0.05, 0.95)})
    found = preprocessed(manifest=known, config=config, count=[-(10**15), 1, 2, 5, 6, 7, 10**15])["count"]
    assert found.tolist() == [[-1], [-1], [-1], [0.5], [1], [1], [1]]
    assert preprocessed(manifest=known, count=[1, 10])["count"].tolist() == [[-1.5], [3]]


def test_quantiles_that_the_shards_lack_are_refused_with_those_there_are():
    count = STATISTICS["count"].model_copy(update={"quantiles": QUANTILES})
    known = manifest_of({}, statistics=STATISTICS | {"count": count})
    message = (
        r"^feed\.clip_quantiles=\[0\.05, 0\.9\]: the shards hold the quantiles 0\.01, 0\.05, 0\.95, 0\.99; take two of"
    )
    with pytest.raises(ConfigError, match=message):
        Preprocess(known, CONFIG.model_copy(update={"clip_quantiles": (0.05, 0.9)}))


def test_a_text_can_be_its_words_and_says_how_many_there_are():
    texts = [b"Den Platz, short", "größer als DEN den den".encode(), b"", b"\xff"]
    found = preprocessed(config=WORDS, comment=texts)["comment"]
    assert found.dtype == np.int32
    assert found.tolist() == [[2, 4, 5, 0], [3, 1, 2, 2], [0] * 4, [0] * 4]
    preprocess = Preprocess(manifest_of({}), WORDS)
    assert preprocess.inputs["comment"] == ((4,), "int32")
    assert preprocess.num_values == {"comment": 6}
    assert Preprocess(manifest_of({}), CONFIG).num_values == {"comment": 256}


def test_the_less_frequent_words_may_be_left_out():
    config = CONFIG.model_copy(update={"text": WordsText(max_words=4, vocabulary_size=2)})
    found = preprocessed(config=config, comment=["den platz größer short".encode()])["comment"]
    assert found.tolist() == [[2, 1, 3, 1]]
    assert Preprocess(manifest_of({}), config).num_values == {"comment": 4}


def test_more_words_than_were_kept_are_refused():
    config = CONFIG.model_copy(update={"text": WordsText(vocabulary_size=5)})
    with pytest.raises(
        ConfigError, match=r"^feed\.text\.vocabulary_size=5: only data\.text\.max_vocabulary=4 tokens of"
    ):
        Preprocess(manifest_of({}), config)


def test_words_that_nobody_counted_are_refused():
    with pytest.raises(ConfigError, match=r"^feed\.text\.kind=words: needs the vocabulary of the training split"):
        Preprocess(manifest_of({}, config={"text": None}), WORDS)


def test_a_text_is_its_bytes_cut_or_padded():
    found = preprocessed(comment=[b"", b"abc", "abcdeö".encode(), b"abcdefgh", b"a\0b"])["comment"]
    assert [bytes(row) for row in found] == [b"\0" * 6, b"abc\0\0\0", b"abcde\xc3", b"abcdef", b"a\0b\0\0\0"]


class TestImages:
    """What becomes of an encoded image."""

    bands = np.repeat(np.array([10, 20, 30, 40, 50, 60, 70, 80], np.uint8), 4).reshape(8, 4)  # portrait: 8 rows of 4

    def test_the_middle_of_a_portrait_is_taken(self):
        rgb = np.stack([self.bands] * 3, axis=-1)
        assert decoded(encoded(rgb), 4, 4)[:, 0, 0].tolist() == [30, 40, 50, 60]

    def test_the_middle_of_a_landscape_is_taken(self):
        rgb = np.stack([self.bands.T] * 3, axis=-1)
        assert decoded(encoded(rgb), 4, 4)[0, :, 0].tolist() == [30, 40, 50, 60]

    def test_of_an_odd_rest_the_larger_part_is_cut_at_the_end(self):
        assert decoded(encoded(self.bands[:7]), 4, 4, 1)[:, 0, 0].tolist() == [20, 30, 40, 50]

    def test_a_smaller_one_is_enlarged_until_it_covers_the_size(self):
        found = decoded(encoded(np.array([[0, 100]], np.uint8)), 2, 2, 1)
        assert found[..., 0].tolist() == [[25, 75]] * 2  # 0 25 75 100, bilinear; the middle of it

    def test_a_larger_one_is_averaged_not_sampled(self):
        checkers = np.indices((64, 64)).sum(axis=0) % 2 * 255
        found = decoded(encoded(checkers.astype(np.uint8)), 4, 4, 1)
        assert set(found.ravel()) <= {127, 128}

    @pytest.mark.parametrize("size", [(640, 427), (333, 500), (225, 1000), (97, 13)])
    def test_resized_it_is_the_picture_that_pillow_makes(self, size):
        width, height = size
        rows, columns = np.mgrid[:height, :width]
        smooth = np.stack([rows * 255 / height, columns * 255 / width, (rows + columns) % 256 * 0 + 90], axis=-1)
        image = Image.fromarray(smooth.astype(np.uint8))
        scale = max(224 / width, 224 / height)
        large = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
        left, top = (large.width - 224) // 2, (large.height - 224) // 2
        expected = np.asarray(large.crop((left, top, left + 224, top + 224)), int)
        # They differ by the rounding of the second side, which only Pillow has to make.
        assert np.abs(decoded(encoded(smooth.astype(np.uint8)), 224, 224) - expected).max() <= 2

    def test_a_grey_jpeg_and_a_grey_png_become_rgb(self):
        grey = np.full((4, 4), 77, np.uint8)
        for form in ("JPEG", "PNG"):
            assert np.array_equal(decoded(encoded(grey, form), 4, 4), np.full((4, 4, 3), 77))

    def test_in_a_batch_forms_and_sizes_may_differ(self):
        grey = np.full((9, 5), 200, np.uint8)
        rgb = np.stack([self.bands] * 3, axis=-1)
        found = preprocessed(photo=[encoded(grey, "JPEG"), encoded(rgb)])["photo"]
        assert np.array_equal(found[0], np.full((4, 4, 3), 200))
        assert np.array_equal(found[1], rgb[2:6])

    def test_they_need_a_size(self):
        with pytest.raises(ConfigError, match=r"feed\.image_size: must be given, because photo holds encoded images"):
            Preprocess(manifest_of({}), FeedConfig())


def test_a_name_that_no_argument_can_have_is_replaced_by_one_that_it_can():
    names = ["x", "class", "X", "petal width (cm)", "petal_width_cm", "Größe", "7", "价格", "名", "mask", "_private"]
    assert input_names(names, reserved=("mask",)) == {
        "x": "x",
        "class": "class_2",
        "X": "X_2",
        "petal width (cm)": "petal_width_cm_2",
        "petal_width_cm": "petal_width_cm",
        "Größe": "Gr_e",
        "7": "x7",
        "价格": "x_3",
        "名": "x_4",
        "mask": "mask_2",
        "_private": "private",
    }


def test_the_names_are_the_inputs_and_their_marks():
    assert Preprocess(manifest_of({}), CONFIG).names == (*INPUTS, "colour_missing", "weight (g)_missing")
