"""Preprocess: from features as they are stored to what a model sees, the same in the feed and in the exported model."""

import keyword
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf

from tasks.config import FeedConfig
from tasks.feed.places import find_places
from tasks.feed.signature import (
    PARALLEL_IMAGES,
    Signature,
    channels,
    clip_limits,
    decoded_signature,
    feature_names,
    stored_shape,
    vocabulary,
)
from tasks.feed.words import NUM_RESERVED, find_words
from tasks.prepare.manifest import JPEG, ShardManifest
from tasks.texts import BytesText

# What a feed and a signature have beside the inputs, and TensorFlow's own argument.
_RESERVED = ("mask", "first_row", "num_valid", "mix_label", "mix_weight", "examples", "self")


class Preprocess:
    """Makes a model's inputs of the features of `names`, all of them numbers: no replica ever sees a string.

    - tensor: as it is.
    - image: decoded and brought to `feed.image_size`, [h, w, c] uint8, 0..255.
    - text: its UTF-8 bytes, [feed.text.length] uint8, cut (even inside a character) or padded with 0; or its tokens'
      places in the vocabulary, [feed.text.max_words] int32 (`tasks.feed.words`).
    - category: one-hot, [1 + V] float32 over the V most frequent values of the training split, at most
      `feed.max_categories`; place 0 is for values that are not among them, or missing.
    - number: [1] float32, clipped to `feed.clip_quantiles`, less the mean and over the standard deviation of the
      training split; 0 where missing.
    - missing: [1] float32, 1 where the value that it stands for is missing, else 0.

    An input has its feature's name, or one as near to it as Keras and TensorFlow allow: see `input_names`. The dtypes
    do not depend on `train.precision`, because Keras's layers cast what they are given.
    """

    def __init__(self, manifest: ShardManifest, config: FeedConfig) -> None:
        """Raises ConfigError if the config does not fit the features."""
        self.names = feature_names(manifest)
        """The features that go in: the manifest's inputs, and what marks their missing values."""
        self.input_names = input_names(self.names, reserved=(*_RESERVED, manifest.target, manifest.id))
        """The name of each one's input."""
        self._config = config
        self._features = {name: manifest.features[name] for name in self.names}
        self._statistics = manifest.statistics
        self._tokens = manifest.tokens
        self._vocabularies = {name: vocabulary(manifest, config, name) for name in self.names}
        self._limits = {name: clip_limits(manifest, config, name) for name in self.names}
        self._signature = decoded_signature(manifest, config)

    @property
    def stored(self) -> Signature:
        """What goes in, by the name of the input: the features as they are stored."""
        return {
            self.input_names[name]: (stored_shape(feature), feature.dtype) for name, feature in self._features.items()
        }

    @property
    def inputs(self) -> Signature:
        """What comes out: the model's inputs."""
        return {self.input_names[name]: value for name, value in self._signature.items()}

    @property
    def num_values(self) -> dict[str, int]:
        """How many values, from 0 on, the whole numbers of an input may take that are no amounts: those of texts."""
        return {
            self.input_names[name]: 256
            if isinstance(self._config.text, BytesText)
            else NUM_RESERVED + len(self._vocabularies[name])
            for name, feature in self._features.items()
            if feature.kind == "text"
        }

    def __call__(
        self, parsed: Mapping[str, tf.Tensor], made: Mapping[str, tf.Tensor] | None = None
    ) -> dict[str, tf.Tensor]:
        """Returns {input: [b, *shape]} of {feature: [b, *stored_shape]}, of `names` or of more.

        What is `made` already, {feature: [b, *shape]}, is taken as it is.
        """
        made = made or {}
        return {
            self.input_names[name]: made[name] if name in made else self._convert(name, parsed) for name in self.names
        }

    def _convert(self, name: str, parsed: Mapping[str, tf.Tensor]) -> tf.Tensor:
        feature, value = self._features[name], parsed[name]
        missing = False if feature.missing is None else parsed[feature.missing] == 1
        match feature.kind:
            case "image":
                return self._decode_images(value, channels=channels(feature))
            case "text":
                return self._read_texts(name, value)
            case "category":
                return self._one_hot(name, value, missing)
            case "number":
                return self._normalise(name, value, missing)
            case "missing":
                return tf.cast(value, tf.float32)[:, tf.newaxis]
            case _:
                return value

    def _read_texts(self, name: str, texts: tf.Tensor) -> tf.Tensor:
        text = self._config.text
        if isinstance(text, BytesText):
            return tf.ensure_shape(tf.io.decode_raw(texts, tf.uint8, fixed_length=text.length), [None, text.length])
        assert self._tokens is not None
        return find_words(texts, self._tokens, self._vocabularies[name], max_words=text.max_words)

    def _one_hot(self, name: str, values: tf.Tensor, missing: tf.Tensor | bool) -> tf.Tensor:
        vocabulary = self._vocabularies[name]
        place = tf.where(missing, 0, find_places(values, vocabulary))
        return tf.one_hot(place, 1 + len(vocabulary), dtype=tf.float32)

    def _normalise(self, name: str, values: tf.Tensor, missing: tf.Tensor | bool) -> tf.Tensor:
        statistics = self._statistics[name]
        # In float64, or a time of 1.7e9 seconds would have a grain of two minutes before its mean is taken off.
        number = tf.cast(values, tf.float64)
        if limits := self._limits[name]:
            number = tf.clip_by_value(number, *limits)
        number = (number - (statistics.mean or 0)) / (statistics.std or 1)
        return tf.cast(tf.where(missing, tf.zeros_like(number), number), tf.float32)[:, tf.newaxis]

    def _decode_images(self, encoded: tf.Tensor, *, channels: int) -> tf.Tensor:
        assert self._config.image_size is not None
        height, width = self._config.image_size
        return tf.map_fn(
            lambda image: decode_image(image, height=height, width=width, channels=channels),
            encoded,
            fn_output_signature=tf.TensorSpec([height, width, channels], tf.uint8),
            parallel_iterations=PARALLEL_IMAGES,
        )


def decode_image(encoded: tf.Tensor, *, height: int, width: int, channels: int) -> tf.Tensor:
    """Returns [height, width, channels] uint8 of a JPEG or PNG, which one is decided by content.

    The image is resized, its proportions kept, until it just covers that size (bilinear, with antialiasing), and its
    middle is taken. One that covers it already is only cut.
    """
    image = tf.cond(
        tf.strings.substr(encoded, 0, len(JPEG)) == JPEG,
        # The default is quicker and up to 21 of 255 off; this is what other decoders give.
        lambda: tf.io.decode_jpeg(encoded, channels=channels, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_png(encoded, channels=channels),
    )
    image = tf.ensure_shape(image, [None, None, channels])
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    target = tf.constant([height, width], tf.float32)
    scale = tf.reduce_max(target / size)
    corner = tf.floor((tf.round(size * scale) - target) / 2)  # of the middle; whole pixels: a shift blurs nothing

    def cut() -> tf.Tensor:
        top, left = tf.unstack(tf.cast(corner, tf.int32))
        return image[top : top + height, left : left + width]

    def resize() -> tf.Tensor:
        # Not tf.image.resize: this makes only the pixels that stay.
        pixels = tf.raw_ops.ScaleAndTranslate(
            images=image[tf.newaxis],
            size=[height, width],
            scale=tf.stack([scale, scale]),
            translation=-corner,
            kernel_type="triangle",
            antialias=True,
        )
        return tf.saturate_cast(tf.round(pixels[0]), tf.uint8)

    # A cut costs a fifth: images that were resized when they were sharded need no more.
    return tf.ensure_shape(tf.cond(scale == 1, cut, resize), [height, width, channels])


def input_names(names: Iterable[str], *, reserved: Iterable[str]) -> dict[str, str]:
    """Returns {feature: input}: names that a Keras input and an argument of a signature can have.

    That is ASCII letters, digits and _, of which the first is a letter: 'petal width (cm)' becomes petal_width_cm. If
    that is another's name but for capitals, one of the `reserved` or a word of Python, it is numbered: class_2.
    """
    found: dict[str, str] = {}
    taken = {word.lower() for word in (*reserved, *keyword.kwlist)}  # TensorFlow does not tell X from x
    fits = re.compile(r"[A-Za-z]\w*", re.ASCII).fullmatch
    for name in sorted(names, key=lambda name: not fits(name)):  # names that can stay come first
        plain = name if fits(name) else re.sub(r"[\W_]+", "_", name, flags=re.ASCII).strip("_")
        plain = plain if fits(plain) else f"x{plain}"
        numbered = (plain, *(f"{plain}_{number}" for number in range(2, len(taken) + 3)))
        found[name] = next(candidate for candidate in numbered if candidate.lower() not in taken)
        taken.add(found[name].lower())
    return found
