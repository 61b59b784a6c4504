"""Pipelines: the sides of the feed bench, ours and its rivals; runs in a process of its own for each side."""

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from tasks.bench.case import Case
from tasks.feed.augment import Augment
from tasks.feed.feed import Feed
from tasks.feed.parse import parse_batch
from tasks.feed.plan import PREFETCH_BATCHES
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import COMPRESSION_TYPES, first_records
from tasks.feed.signature import feature_names, stored_shape
from tasks.prepare.manifest import MANIFEST, Feature, ShardManifest

SEED = 0

tf.get_logger().setLevel(logging.ERROR)  # AutoGraph warns of each `match`, which it leaves as it is, as it should


def turn(side: str, file: Path) -> int:
    """Returns the number of examples that a side delivered in one turn: the same for each side.

    The pipeline goes on where the last turn ended, as in a training. Batches are taken in a graph, as the training loop
    takes them; only Grain has no graph.
    """
    return _running(side, file)()


@lru_cache(maxsize=1)
def _running(side: str, file: Path) -> Callable[[], int]:
    case = Case.read(file)
    if side == "grain":
        batches = _grain(case)
        return lambda: sum(len(next(batches)["image"]) for _ in range(case.num_steps))
    iterator = iter(PIPELINES[side](case))

    @tf.function
    def take(iterator: tf.data.Iterator) -> tf.Tensor:
        taken = tf.constant(0)
        for _ in tf.range(case.num_steps):
            columns = [part for part in tf.nest.flatten(next(iterator)) if part.shape.rank != 0]
            taken += tf.reduce_max([tf.shape(column)[0] for column in columns])  # `first_row` has fewer rows
        return taken

    return lambda: int(take(iterator))


def feed_of(case: Case, *, cache: str, directory: Path | None = None) -> Feed:
    """Returns the feed of one replica over the case's shards, or others of the same examples."""
    directory = directory or case.directory
    config = case.feed.model_copy(update={"cache": cache})
    return Feed(directory, ShardManifest.read(directory / MANIFEST), "train", config, seed=SEED, num_replicas=1)


def _ours(case: Case) -> tf.data.Dataset:
    """The feed; the shards are read anew in every epoch."""
    return feed_of(case, cache="none").training(0)


def _ours_resized(case: Case) -> tf.data.Dataset:
    """The feed on shards whose images were resized when they were sharded."""
    return feed_of(case, cache="none", directory=case.resized).training(0)


def _ours_cached(case: Case) -> tf.data.Dataset:
    """The feed from decoded rows in memory, which are there before the first batch."""
    return feed_of(case, cache="decoded").training(0)


def _guide(case: Case, *, antialias: bool = False) -> tf.data.Dataset:
    """TensorFlow's guide: read, shuffle, parse and decode record by record, batch, prefetch; images by way of floats.

    Texts, categories and numbers stay as they are stored: there it does less than ours. So it does with images, unless
    `antialias` makes of them what ours does.
    """
    manifest = case.manifest()
    features = {name: manifest.features[name] for name in _names(manifest)}
    resize = partial(tf.image.resize, size=case.feed.image_size, antialias=antialias)
    description = {name: _description(feature) for name, feature in features.items()}

    def parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_single_example(record, description)
        return {name: _decode_naively(parsed[name], feature, resize) for name, feature in features.items()}

    records = tf.data.TFRecordDataset(case.files(), COMPRESSION_TYPES[manifest.compression])
    return _as_guides_have_it(records, case, parse)


def _tfds(case: Case) -> tf.data.Dataset:
    """The same shards through TFDS, its files shuffled too, then as its guide has it."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(case.directory)
    dataset = builder.as_dataset(split="train", shuffle_files=True)
    size = case.feed.image_size

    def resize(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {
            name: tf.image.resize(value, size) if value.dtype == tf.uint8 and value.shape.rank == 3 else value
            for name, value in example.items()
        }

    return _as_guides_have_it(dataset, case, resize if size else None)


def _raw_read(case: Case) -> tf.data.Dataset:
    """Records in the order of the files, batched as strings: what no reader of TFRecord can do without."""
    records = tf.data.TFRecordDataset(case.files(), COMPRESSION_TYPES[case.manifest().compression])
    batches = records.batch(case.feed.global_batch_size, drop_remainder=True)
    return batches.repeat().prefetch(PREFETCH_BATCHES)


def _synthetic(case: Case) -> tf.data.Dataset:
    """One ready batch of the feed, over and over."""
    return tf.data.Dataset.from_tensors(next(iter(_ours(case)))).repeat()


def _parse(case: Case) -> tf.data.Dataset:
    """The records of one ready batch, parsed over and over."""
    manifest = case.manifest()
    return _records(case).map(lambda records: parse_batch(records, manifest.features, _names(manifest)))


def _decode(case: Case) -> tf.data.Dataset:
    """What was parsed of one ready batch, made into the model's inputs over and over, and changed by feed.augment."""
    manifest = case.manifest()
    parsed = parse_batch(next(iter(_records(case))), manifest.features, _names(manifest))
    preprocess, epoch = Preprocess(manifest, case.feed), tf.constant(0, tf.int64)
    batches = tf.data.Dataset.from_tensors(parsed).repeat()
    if not case.feed.augment:
        return batches.map(preprocess)
    augment = Augment(manifest, case.feed, preprocess, seed=SEED)

    def decode(parsed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        features = preprocess(parsed, augment.windows(parsed, epoch)) | {name: parsed[name] for name in _keys(manifest)}
        return augment(features, epoch, tf.size(parsed[manifest.id]))

    return batches.map(decode)


PIPELINES: dict[str, Callable[[Case], tf.data.Dataset]] = {
    "ours": _ours,
    "ours_resized": _ours_resized,
    "ours_cached": _ours_cached,
    "guide": _guide,
    "naive": _guide,
    "naive_antialias": partial(_guide, antialias=True),
    "tfds": _tfds,
    "raw_read": _raw_read,
    "synthetic": _synthetic,
    "parse": _parse,
    "decode": _decode,
}


def _grain(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Grain on an ArrayRecord file of bare bytes, in its quickest form: batched before it is prefetched."""
    import grain
    from grain.sources import ArrayRecordDataSource

    def split(record: bytes) -> dict[str, np.ndarray]:
        return {"image": np.frombuffer(record[:-8], np.uint8), "label": np.frombuffer(record[-8:], np.int64)[0]}

    examples = grain.MapDataset.source(ArrayRecordDataSource(str(case.array_record))).shuffle(SEED).map(split)
    batches = examples.batch(case.feed.global_batch_size, drop_remainder=True).repeat()
    options = grain.ReadOptions(num_threads=PREFETCH_BATCHES, prefetch_buffer_size=PREFETCH_BATCHES)
    return iter(batches.to_iter_dataset(options))


def _names(manifest: ShardManifest) -> tuple[str, ...]:
    """Returns the features that the feed reads."""
    return (*feature_names(manifest), *_keys(manifest))


def _keys(manifest: ShardManifest) -> tuple[str, str]:
    return manifest.target, manifest.id


def _records(case: Case) -> tf.data.Dataset:
    records = first_records(case.directory, case.manifest(), "train", count=case.feed.global_batch_size)
    return tf.data.Dataset.from_tensors(records).repeat()


def _as_guides_have_it(
    dataset: tf.data.Dataset, case: Case, function: Callable[..., dict[str, tf.Tensor]] | None
) -> tf.data.Dataset:
    """Returns the batches of a data set of single elements: shuffle, map, batch, prefetch."""
    dataset = dataset.shuffle(case.feed.window)
    if function is not None:
        dataset = dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(case.feed.global_batch_size, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)


def _description(feature: Feature) -> tf.io.FixedLenFeature:
    if feature.storage in {"raw_bytes", "bytes_list"}:
        return tf.io.FixedLenFeature([], tf.string)
    return tf.io.FixedLenFeature(stored_shape(feature), tf.int64 if feature.storage == "int64_list" else tf.float32)


def _decode_naively(value: tf.Tensor, feature: Feature, resize: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    if feature.kind == "image":
        image = tf.io.decode_image(value, channels=feature.shape[-1], dtype=tf.float32, expand_animations=False)
        return resize(image)
    if feature.storage == "raw_bytes":
        return tf.reshape(tf.io.decode_raw(value, feature.dtype), stored_shape(feature))
    return value
