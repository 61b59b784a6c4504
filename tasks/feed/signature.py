"""Signature: shapes and dtypes of examples as they are stored and as a model sees them, known without TensorFlow."""

import math
from collections.abc import Iterable

import numpy as np

from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.prepare.manifest import MAX_VOCABULARY, Feature, ShardManifest

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


def vocabulary(manifest: ShardManifest, name: str) -> tuple[str, ...]:
    """Returns the values of a category that have a place of their own, the most frequent first."""
    return tuple(value for value, _ in (manifest.statistics[name].vocabulary or ())[:MAX_VOCABULARY])


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
            return (config.text_bytes,), "uint8"
        case "category":
            return (1 + len(vocabulary(manifest, name)),), "float32"
        case "number" | "missing":
            return (1,), "float32"
        case _:
            return stored_shape(feature), feature.dtype
