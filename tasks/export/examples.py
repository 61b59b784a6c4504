"""The examples: real ones, as each signature and format takes them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tasks.export.manifest import SERIALIZED, SERVING_DEFAULT, TENSORS
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import first_records
from tasks.prepare.manifest import Shards
from tasks.runs import Run


@dataclass(frozen=True)
class Examples:
    """The first examples of the evaluated split, in storage order."""

    ids: NDArray[np.int64]
    """[n]"""
    arguments: Mapping[str, Mapping[str, tf.Tensor]]
    """By signature: {argument: [n, ...]}."""


def first_examples(run: Run, shards: Shards, *, count: int) -> Examples:
    """Returns `count` examples of `config.evaluate.split`, all of them if there are fewer."""
    config, manifest = run.config, shards.manifest()
    records = first_records(shards.directory, manifest, config.evaluate.split, count=count)
    preprocess = Preprocess(manifest, config.feed)
    parsed = parse_batch(records, manifest.features, (*preprocess.names, manifest.id))
    return Examples(
        parsed[manifest.id].numpy(),
        {
            SERVING_DEFAULT: {preprocess.input_names[name]: parsed[name] for name in preprocess.names},
            TENSORS: preprocess(parsed),
            SERIALIZED: {"examples": records},
        },
    )
