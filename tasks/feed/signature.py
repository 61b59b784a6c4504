"""Signature: shapes and dtypes of examples as they are stored and as a model sees them, known without TensorFlow."""

import math
from collections.abc import Iterable

import numpy as np

from tasks.augmentation import RandomResizedCrop
from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.prepare.manifest import Feature, ShardManifest
from tasks.texts import UNCOUNTED, BytesText, WordsText

PARALLEL_IMAGES = 32  # decoded at once: enough for all cores of a host; the rest of a batch stays encoded meanwhile

Signature = dict[str, tuple[tuple[int, ...], str]]
"""By name: the shape without the batch, and the dtype."""


def feature_names(manifest: ShardManifest) -> tuple[str, ...]:
    """Returns the features that inputs are made of: the manifest's inputs, and what marks their missing values."""
    marks = (manifest.features[name].missing for name in manifest.inputs)
    return (*manifest.inputs, *dict.fromkeys(mark for mark in marks if mark is not None))


def stored_shape(feature: Feature) -> tuple[int, ...]:
    """Returns the shape of one value as it is stored: an encoded image or a text is one string, []."""
    if feature.storage == "bytes_list":
        return ()
    shape = tuple(size for size in feature.shape if size is not None)
    assert len(shape) == len(feature.shape), f"{feature}: only what is stored as bytes may vary in shape"
    return shape


def decoded_signature(manifest: ShardManifest, config: FeedConfig) -> Signature:
    """Returns what `Preprocess` makes of each of `feature_names`, by the name of the feature.

    Raises ConfigError if there are encoded images and no size to bring them to.
    """
    return {name: _decoded(name, manifest, config) for name in feature_names(manifest)}


def num_bytes(values: Iterable[tuple[tuple[int, ...], str]]) -> int:
    """Returns the size in bytes of one value of each of these shapes and dtypes, none of them a string."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in values)


def channels(feature: Feature) -> int:
    """Returns the channels of an encoded image: 1 for grey, 3 for RGB."""
    number = feature.shape[-1]
    assert number in (1, 3), f"{feature}: an image is grey or RGB"
    return number


def vocabulary(manifest: ShardManifest, config: FeedConfig, name: str) -> tuple[str, ...]:
    """Returns the values of a category, or tokens of a text, that a model tells apart, the most frequent first.

    Empty for other features. Raises ConfigError if the tokens that are wanted were not counted, or not kept.
    """
    counted = manifest.statistics[name].vocabulary if name in manifest.statistics else None
    match manifest.features[name].kind, config.text:
        case "category", _:
            return tuple(value for value, _ in (counted or ())[: config.max_categories])
        case "text", WordsText(vocabulary_size=wanted):
            if manifest.tokens is None or counted is None:
                raise ConfigError(UNCOUNTED)
            kept, size = manifest.tokens.max_vocabulary, wanted or len(counted)
            if size > kept:
                raise ConfigError(
                    f"feed.text.vocabulary_size={size}: only data.text.max_vocabulary={kept} tokens of {name} were "
                    "kept; lower the one or raise the other, which writes new shards"
                )
            return tuple(token for token, _ in counted[:size])
        case _:
            return ()


def clip_limits(manifest: ShardManifest, config: FeedConfig, name: str) -> tuple[float, float] | None:
    """Returns between which values a number is held, None if it is not; raises ConfigError if the shards do not say."""
    shares = config.clip_quantiles
    quantiles = manifest.statistics[name].quantiles if manifest.features[name].kind == "number" else None
    if shares is None or quantiles is None:  # there are none if it is missing in all of the training split
        return None
    low, high = (quantiles.get(f"{share:g}") for share in shares)
    if low is None or high is None:
        raise ConfigError(
            f"feed.clip_quantiles={list(shares)}: the shards hold the quantiles {', '.join(quantiles)}; take two "
            "of these"
        )
    return low, high


def augmented_input(manifest: ShardManifest, config: FeedConfig) -> str:
    """Returns the feature that `feed.augment` changes; raises ConfigError if there is none, or no telling which."""
    images = [name for name in manifest.inputs if _is_image(manifest.features[name])]
    name = config.augment_input
    if name in images:
        return name
    known = f"the inputs that are images are {', '.join(images)}" if images else "no input is one"
    if name is not None:
        raise ConfigError(f"feed.augment_input={name!r}: must be an encoded image or a tensor [h, w, 1 or 3]; {known}")
    if len(images) != 1:
        raise ConfigError(
            "feed.augment: needs an input that is an encoded image or a tensor [h, w, 1 or 3] of uint8 or a floating "
            f"type, and {known}; {'name one in feed.augment_input' if images else 'leave feed.augment out'}"
        )
    return images[0]


def decodes_windows(manifest: ShardManifest, config: FeedConfig) -> bool:
    """Returns whether `feed.augment` begins with a random window of an encoded image, of which the rest is not decoded.

    So what is decoded is another thing in every epoch.
    """
    if not config.augment or not isinstance(config.augment[0], RandomResizedCrop):
        return False
    return manifest.features[augmented_input(manifest, config)].kind == "image"


def _is_image(feature: Feature) -> bool:
    if feature.kind == "image":
        return True
    is_pixels = feature.kind == "tensor" and feature.dtype in ("uint8", "float32", "float64")
    return is_pixels and len(feature.shape) == 3 and feature.shape[2] in (1, 3)


def _decoded(name: str, manifest: ShardManifest, config: FeedConfig) -> tuple[tuple[int, ...], str]:
    feature = manifest.features[name]
    match feature.kind:
        case "image":
            if config.image_size is None:
                raise ConfigError(
                    f"feed.image_size: must be given, because {name} holds encoded images, each of its own size; "
                    "for example feed.image_size=[224, 224]"
                )
            return (*config.image_size, channels(feature)), "uint8"
        case "text":
            text = config.text
            return ((text.length,), "uint8") if isinstance(text, BytesText) else ((text.max_words,), "int32")
        case "category":
            return (1 + len(vocabulary(manifest, config, name)),), "float32"
        case "number" | "missing":
            return (1,), "float32"
        case _:
            return stored_shape(feature), feature.dtype
