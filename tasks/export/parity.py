"""Parity: the exported model against the trained one, on real examples; runs in a worker process of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tasks.distribution import OneDevice
from tasks.errors import ExportError
from tasks.evaluate.report import PREDICTIONS
from tasks.export.manifest import SERIALIZED, SERVING_DEFAULT
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import first_records
from tasks.prepare.manifest import Shards
from tasks.runs import find_run
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy


def compare(workspace: str, run_id: str, shards: dict[str, Any], directory: str) -> dict[str, Any]:
    """Returns `num_examples` that were compared and `largest_difference` of any probability, over all signatures.

    Loads the SavedModel in `directory` as a stranger would and sends it the first `config.export.num_parity_examples`
    of the evaluated split, one alone and then in batches; what it has to answer is in the report's predictions.
    Raises ExportError that names signature, example and figures if an answer is of another form, not finite, or
    further off than `config.export.tolerance`.
    """
    progress("parity")
    run, found = find_run(Path(workspace), run_id), Shards.model_validate(shards)
    config, manifest = run.config, found.manifest()
    open_strategy(OneDevice())  # takes GPU memory as needed; its scope is not entered
    records = first_records(found.directory, manifest, config.evaluate.split, count=config.export.num_parity_examples)
    preprocess = Preprocess(manifest, config.feed)
    parsed = parse_batch(records, manifest.features, (*preprocess.names, manifest.id))
    raw = {preprocess.input_names[name]: parsed[name] for name in preprocess.names}
    ids = parsed[manifest.id].numpy()
    trained = _trained_probabilities(run.report / PREDICTIONS, ids)

    model = tf.saved_model.load(directory)
    largest_difference = 0.0
    for name, batch in ((SERVING_DEFAULT, raw), (SERIALIZED, {"examples": records})):
        signature = model.signatures[name]
        arguments = signature.structured_input_signature[1]
        for rows in _batches(len(ids), config.evaluate.batch_size):
            outputs = signature(**{argument: batch[argument][rows] for argument in arguments})
            answer = {key: value.numpy() for key, value in outputs.items()}
            difference = check(
                name, answer, trained[rows], ids[rows], manifest.label_map, tolerance=config.export.tolerance
            )
            largest_difference = max(largest_difference, difference)
            progress("parity", signature=name, num_examples=rows.stop)
    return {"num_examples": len(ids), "largest_difference": largest_difference}


def check(
    signature: str,
    answer: Mapping[str, NDArray[Any]],
    trained: NDArray[np.float64],
    ids: NDArray[np.int64],
    label_map: tuple[str, ...],
    *,
    tolerance: float,
) -> float:
    """Returns the largest difference between a signature's `answer` and the `trained` probabilities [b, num_classes].

    Raises ExportError as `compare` does.
    """
    probabilities, where = answer["probabilities"], f"signature {signature}"
    if probabilities.dtype != np.float32 or probabilities.shape != trained.shape:
        raise ExportError(
            f"{where}: gives probabilities {list(probabilities.shape)} {probabilities.dtype} where "
            f"{list(trained.shape)} float32 are due; the model is not given its name"
        )
    difference = np.abs(probabilities - trained)
    # Not `difference > tolerance`, which is False for a NaN.
    row, column = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
    if not difference[row, column] <= tolerance:
        raise ExportError(
            f"{where}, example {ids[row]}: probability of {label_map[column]!r} is {probabilities[row, column]:.9g} "
            f"exported and {trained[row, column]:.9g} trained, further apart than export.tolerance={tolerance:g}; "
            "the model is not given its name; raise the tolerance only if rounding explains it, otherwise look for a "
            "layer that computes something else outside of training, or evaluate anew"
        )
    classes = probabilities.argmax(axis=1)
    names = np.array([label.encode() for label in label_map], dtype=object)[classes]
    wrong = (answer["class"] != classes) | (answer["label"] != names)
    if wrong.any():
        first = int(wrong.argmax())
        raise ExportError(
            f"{where}, example {ids[first]}: gives class {answer['class'][first]} and label {answer['label'][first]} "
            f"where its probabilities say {classes[first]} and {names[first]}; the model is not given its name"
        )
    return float(difference[row, column])


def _trained_probabilities(path: Path, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns [n, num_classes]: what the report has for the examples of these ids."""
    with np.load(path, allow_pickle=False) as predictions:
        row_of = {int(id): row for row, id in enumerate(predictions["ids"])}
        rows = [row_of[int(id)] for id in ids]
        probabilities: NDArray[np.float64] = predictions["probabilities"][rows]
    return probabilities


def _batches(num_examples: int, batch_size: int) -> list[slice]:
    """Returns an example alone, then the others in batches: the batch dimension has to be free."""
    starts = [0, *range(1, num_examples, batch_size)]
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], num_examples], strict=True)]
