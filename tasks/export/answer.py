"""The answer: what an exported model gives for each kind of target, and what of it follows from what."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tasks.export.manifest import SignatureOutput
from tasks.prepare.manifest import ShardManifest
from tasks.target import MultiLabelTarget


class Answer(Protocol):
    """The outputs of every signature; the first is `main`, from which the others follow."""

    @property
    def main(self) -> str:
        """Its name: that of `Head.answer`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of what `main` has in each place: classes or numbers."""

    @property
    def unit(self) -> NDArray[np.float64]:
        """[len(names)], in what a difference of `main` is told."""

    @property
    def outputs(self) -> dict[str, SignatureOutput]:
        """All outputs, `main` first."""

    def __call__(self, raw: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs for what a model gives, [b, num_outputs]."""

    def others(self, main: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Returns what the other outputs must be beside this one; text as bytes objects."""


def make_answer(manifest: ShardManifest, threshold: float) -> Answer:
    """Returns the answer of a model that was trained on these shards; `threshold` as evaluate.threshold."""
    names = manifest.label_map
    match manifest.target_kind:
        case "binary":
            return OneClass(names, threshold)
        case "multi_label":
            delimiter = MultiLabelTarget.model_validate(manifest.config["target"]).delimiter
            return AnyClasses(names, threshold, delimiter)
        case "regression":
            return Numbers(names, *(np.array(each) for each in manifest.target_scale))
        case _:
            return OneClass(names)


@dataclass(frozen=True)
class _Probabilities:
    names: tuple[str, ...]

    @property
    def main(self) -> str:
        return "probabilities"

    @property
    def unit(self) -> NDArray[np.float64]:
        return np.ones(len(self.names))


@dataclass(frozen=True)
class OneClass(_Probabilities):
    """The probability of each class, its index and its name: of the most probable, or by the threshold of two."""

    threshold: float | None = None
    """Of the second class; None: a model has a logit for each class."""

    @property
    def outputs(self) -> dict[str, SignatureOutput]:
        return {
            "probabilities": SignatureOutput(shape=(len(self.names),), dtype="float32"),
            "class": SignatureOutput(shape=(), dtype="int64"),
            "label": SignatureOutput(shape=(), dtype="string"),
        }

    def __call__(self, raw: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.threshold is None:
            probabilities = tf.nn.softmax(raw)
            classes = tf.argmax(probabilities, axis=1)
        else:
            positive = tf.sigmoid(raw)
            probabilities = tf.concat([1 - positive, positive], axis=1)
            classes = tf.cast(positive[:, 0] >= self.threshold, tf.int64)
        return {"probabilities": probabilities, "class": classes, "label": tf.gather(tf.constant(self.names), classes)}

    def others(self, main: NDArray[Any]) -> dict[str, NDArray[Any]]:
        by_threshold = self.threshold is not None
        classes = (main[:, 1] >= np.float32(self.threshold)).astype(int) if by_threshold else main.argmax(axis=1)
        return {"class": classes, "label": np.array([name.encode() for name in self.names], object)[classes]}


@dataclass(frozen=True)
class AnyClasses(_Probabilities):
    """The probability of each class, 1 for each that is there by the threshold, and the names of these in one text."""

    threshold: float
    delimiter: str

    @property
    def outputs(self) -> dict[str, SignatureOutput]:
        return {
            "probabilities": SignatureOutput(shape=(len(self.names),), dtype="float32"),
            "class": SignatureOutput(shape=(len(self.names),), dtype="int64"),
            "label": SignatureOutput(shape=(), dtype="string"),
        }

    def __call__(self, raw: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.sigmoid(raw)
        there = probabilities >= self.threshold
        names = tf.ragged.boolean_mask(tf.broadcast_to(tf.constant(self.names), tf.shape(there)), there)
        label = tf.strings.reduce_join(names, axis=1, separator=self.delimiter)
        return {"probabilities": probabilities, "class": tf.cast(there, tf.int64), "label": label}

    def others(self, main: NDArray[Any]) -> dict[str, NDArray[Any]]:
        there = main >= np.float32(self.threshold)
        texts = [self.delimiter.join(self.names[place] for place in np.flatnonzero(row)).encode() for row in there]
        return {"class": there.astype(int), "label": np.array(texts, object)}


@dataclass(frozen=True)
class Numbers:
    """The numbers in their own unit; float64, for float32 would round what is large beside its deviation."""

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    unit: NDArray[np.float64]

    @property
    def main(self) -> str:
        return "values"

    @property
    def outputs(self) -> dict[str, SignatureOutput]:
        return {"values": SignatureOutput(shape=(len(self.names),), dtype="float64")}

    def __call__(self, raw: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"values": tf.cast(raw, tf.float64) * self.unit + self.mean}

    def others(self, main: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {}
