"""Augment: the images of a training batch changed at random, as a function of seed, epoch and example."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from tasks.augmentation import Augmentation, Color, Cutmix, Mixup, PadCrop, RandAugment, RandomResizedCrop
from tasks.config import FeedConfig
from tasks.errors import ConfigError
from tasks.feed import mix, transforms
from tasks.feed.philox import uniform
from tasks.feed.preprocess import Preprocess
from tasks.feed.rand_augment import rand_augment
from tasks.feed.signature import PARALLEL_IMAGES, augmented_input, decodes_windows
from tasks.prepare.manifest import JPEG, ShardManifest

_TRANSFORMS: dict[str, Callable[..., tf.Tensor]] = {
    "flip": transforms.flip,
    "pad_crop": transforms.pad_crop,
    "random_resized_crop": transforms.random_resized_crop,
    "color": transforms.color,
    "cutout": transforms.cutout,
    "rand_augment": rand_augment,
}


class Augment:
    """Changes one input of a batch for training by `feed.augment`, in its order.

    The random numbers of an example are a function of seed, epoch, its id and the place of the change in the list. What
    mixes takes besides the neighbour in the batch, and so is a function of the order too. Where something mixes there
    are two more columns, both [b]: `mix_label` int64, the neighbour's label, and `mix_weight` float32, the share of the
    own one.
    """

    def __init__(self, manifest: ShardManifest, config: FeedConfig, preprocess: Preprocess, *, seed: int) -> None:
        """Raises ConfigError if the changes do not fit the features."""
        self._seed = seed
        self._changes = config.augment
        self._label, self._id = manifest.target, manifest.id
        self._name = augmented_input(manifest, config)
        self._input = preprocess.input_names[self._name]
        self._shape, dtype = preprocess.inputs[self._input]
        for place, change in enumerate(config.augment):
            _check(f"feed.augment.{place}", change, self._name, self._shape, dtype)
        first = config.augment[0]
        # A window that is chosen first need be all that is decoded.
        self._window = first if isinstance(first, RandomResizedCrop) and decodes_windows(manifest, config) else None

    def windows(self, parsed: Mapping[str, tf.Tensor], epoch: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns {feature: [b, *shape]}, the images as far as they are changed before they are decoded; or nothing."""
        if self._window is None:
            return {}
        numbers = self._draw(parsed[self._id], epoch)[0]
        return {self._name: self._decode_windows(parsed[self._name], numbers, self._window)}

    def __call__(
        self, features: Mapping[str, tf.Tensor], epoch: tf.Tensor, num_valid: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the decoded features with the changes that are still to be made.

        `epoch`: [] int64. `num_valid`: [] int32; the rows behind are padding, and mix with none that is not.
        """
        drawn = self._draw(features[self._id], epoch)
        images = features[self._input]
        partners = mix.partners(tf.shape(images)[0], num_valid)
        mixed = mix.Mixed(images, tf.ones(tf.shape(images)[:1]))
        done = 0 if self._window is None else 1
        for change, values in zip(self._changes[done:], drawn[done:], strict=True):
            if isinstance(change, Mixup | Cutmix):
                mixed = mix.mix(mixed, partners, values, change)
            else:
                mixed = mixed._replace(images=_TRANSFORMS[change.kind](mixed.images, values, change))
        changed = {**features, self._input: tf.ensure_shape(mixed.images, [None, *self._shape])}
        if any(isinstance(change, Mixup | Cutmix) for change in self._changes):
            changed |= {"mix_label": tf.gather(features[self._label], partners), "mix_weight": mixed.share}
        return changed

    def _draw(self, ids: tf.Tensor, epoch: tf.Tensor) -> list[tf.Tensor]:
        """Returns the random numbers of each change, [b, k]."""
        count = max(_num_numbers(change) for change in self._changes)
        numbers = uniform(self._seed, epoch, ids, num_streams=len(self._changes), count=count)
        return [numbers[:, place, : _num_numbers(change)] for place, change in enumerate(self._changes)]

    def _decode_windows(self, encoded: tf.Tensor, numbers: tf.Tensor, change: RandomResizedCrop) -> tf.Tensor:
        height, width, channels = self._shape
        return tf.map_fn(
            lambda pair: decode_window(pair[0], pair[1], change, height=height, width=width, channels=channels),
            (encoded, numbers),
            fn_output_signature=tf.TensorSpec(self._shape, tf.uint8),
            parallel_iterations=PARALLEL_IMAGES,
        )


def decode_window(
    encoded: tf.Tensor, numbers: tf.Tensor, change: RandomResizedCrop, *, height: int, width: int, channels: int
) -> tf.Tensor:
    """Returns [height, width, channels] uint8: a random window of a JPEG or PNG, resized (bilinear, antialiased).

    Of a JPEG no more than the window is decoded. Numbers: [k] float32, as `transforms.choose_windows` takes them.
    """

    def from_jpeg() -> tf.Tensor:
        window = transforms.choose_windows(numbers, tf.io.extract_jpeg_shape(encoded)[:2], change)
        return tf.io.decode_and_crop_jpeg(encoded, window, channels=channels, dct_method="INTEGER_ACCURATE")

    def from_png() -> tf.Tensor:
        image = tf.io.decode_png(encoded, channels=channels)
        top, left, tall, wide = tf.unstack(transforms.choose_windows(numbers, tf.shape(image)[:2], change))
        return image[top : top + tall, left : left + wide]

    pixels = tf.cond(tf.strings.substr(encoded, 0, len(JPEG)) == JPEG, from_jpeg, from_png)
    pixels = tf.image.resize(tf.ensure_shape(pixels, [None, None, channels]), [height, width], antialias=True)
    return tf.saturate_cast(tf.round(pixels), tf.uint8)


def _num_numbers(change: Augmentation) -> int:
    """Returns how many random numbers an example needs for a change."""
    match change:
        case Mixup() | Cutmix():
            return mix.NUM_NUMBERS
        case RandAugment():
            return 2 * change.num_ops
        case _:
            return transforms.NUM_NUMBERS[change.kind]


def _check(where: str, change: Augmentation, name: str, shape: tuple[int, ...], dtype: str) -> None:
    height, width, channels = shape
    if isinstance(change, Color | RandAugment) and dtype != "uint8":
        raise ConfigError(
            f"{where}: {change.kind} needs an image of uint8, 0..255, and {name} is {dtype}, whose range is not known; "
            "leave it out, or store uint8"
        )
    if isinstance(change, Color) and channels == 1 and (change.saturation or change.hue):
        raise ConfigError(f"{where}: {name} is grey, so saturation and hue must be left out or 0")
    if isinstance(change, PadCrop) and change.border == "reflect" and change.pixels >= min(height, width):
        raise ConfigError(
            f"{where}.pixels={change.pixels}: {name} of {height}x{width} pixels can be mirrored by at most "
            f"{min(height, width) - 1}; take fewer, or border: zero"
        )
