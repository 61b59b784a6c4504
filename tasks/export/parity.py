"""Parity: the exported model against the trained one, on real examples; runs in a worker process of its own."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tasks.distribution import OneDevice
from tasks.errors import ExportError
from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tasks.export import keras_file, onnx_file
from tasks.export.answer import Answer, make_answer
from tasks.export.examples import first_examples
from tasks.export.latency import measure
from tasks.export.manifest import SERVING_DEFAULT, TENSORS
from tasks.prepare.manifest import Shards
from tasks.runs import Run, find_run
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy

Function = Callable[..., Mapping[str, NDArray[Any]]]


def compare(workspace: str, run_id: str, shards: dict[str, Any], directory: str) -> dict[str, Any]:
    """Returns `num_examples` that were compared, `largest_difference` over all signatures and formats, in
    `Answer.unit`, and the `latencies` of `serving_default`.

    Loads what is in `directory` as a stranger would and sends it the first `config.export.num_parity_examples` of the
    evaluated split, one alone and then in batches; what it has to answer is in the report's predictions.
    Raises ExportError that names signature or format, example and figures if an answer is of another form, not finite,
    or further off than `config.export.tolerance`.
    """
    progress("parity")
    run, found = find_run(Path(workspace), run_id), Shards.model_validate(shards)
    config, manifest = run.config, found.manifest()
    open_strategy(OneDevice())  # takes GPU memory as needed; its scope is not entered
    examples = first_examples(run, found, count=config.export.num_parity_examples)
    ids = examples.ids
    due = make_answer(manifest, config.evaluate.threshold)
    trained = _trained(run.report / PREDICTIONS, ids)

    model = tf.saved_model.load(directory)
    largest_difference = 0.0
    batches = _batches(len(ids), config.evaluate.batch_size)
    signatures = (
        (f"signature {name}", _plain(model.signatures[name]), arguments, check)
        for name, arguments in examples.arguments.items()
    )
    files = (
        (name, function, examples.arguments[TENSORS], check_main)
        for name, function in _files(run, Path(directory), due)
    )
    for where, function, arguments, check_answer in chain(signatures, files):  # a file is loaded once its turn comes
        for rows in batches:
            answer = function(**{argument: value[rows] for argument, value in arguments.items()})
            difference = check_answer(where, answer, trained[rows], ids[rows], due, tolerance=config.export.tolerance)
            largest_difference = max(largest_difference, difference)
            progress("parity", where=where, num_examples=rows.stop)
    latencies = measure(
        model.signatures[SERVING_DEFAULT], examples.arguments[SERVING_DEFAULT], num_calls=config.export.num_timed_calls
    )
    return {
        "num_examples": len(ids),
        "largest_difference": largest_difference,
        "latencies": [latency.model_dump() for latency in latencies],
    }


def check(
    where: str,
    answer: Mapping[str, NDArray[Any]],
    trained: NDArray[np.float64],
    ids: NDArray[np.int64],
    due: Answer,
    *,
    tolerance: float,
) -> float:
    """Returns the largest difference of an `answer` from the `trained` [b, len(due.names)], in `due.unit`, once all its
    outputs fit together.

    Raises ExportError as `compare` does; `where` is how it begins.
    """
    difference = check_main(where, answer, trained, ids, due, tolerance=tolerance)
    found = answer[due.main]
    others = due.others(found)
    wrong = np.zeros(len(found), bool)
    for name, wanted in others.items():
        wrong |= (answer[name] != wanted).reshape(len(found), -1).any(axis=1)
    if wrong.any():
        first = int(wrong.argmax())
        given = " and ".join(f"{name} {answer[name][first]}" for name in others)
        should = " and ".join(str(wanted[first]) for wanted in others.values())
        raise ExportError(
            f"{where}, example {ids[first]}: gives {given} where its {due.main} say {should}; the model is not given "
            "its name"
        )
    return difference


def check_main(
    where: str,
    answer: Mapping[str, NDArray[Any]],
    trained: NDArray[np.float64],
    ids: NDArray[np.int64],
    due: Answer,
    *,
    tolerance: float,
) -> float:
    """Returns what `check` does, of an answer that has `due.main` alone."""
    found, dtype = answer[due.main], due.outputs[due.main].dtype
    if found.dtype != dtype or found.shape != trained.shape:
        raise ExportError(
            f"{where}: gives {due.main} {list(found.shape)} {found.dtype} where {list(trained.shape)} {dtype} are due; "
            "the model is not given its name"
        )
    difference = np.abs(found - trained) / due.unit
    # Not `difference > tolerance`, which is False for a NaN.
    row, column = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
    if not difference[row, column] <= tolerance:
        what, unit = ("value", f" * {due.unit[column]:g}") if due.main == "values" else ("probability", "")
        raise ExportError(
            f"{where}, example {ids[row]}: {what} of {due.names[column]!r} is {found[row, column]:.9g} exported and "
            f"{trained[row, column]:.9g} trained, further apart than export.tolerance={tolerance:g}{unit}; the model "
            "is not given its name; raise the tolerance only if rounding explains it, otherwise look for a layer that "
            "computes something else outside of training, or evaluate anew"
        )
    return float(difference[row, column])


def _plain(signature: Callable[..., Mapping[str, tf.Tensor]]) -> Function:
    """Returns a signature that answers with arrays."""
    return lambda **arguments: {name: output.numpy() for name, output in signature(**arguments).items()}


def _files(run: Run, directory: Path, answer: Answer) -> Iterator[tuple[str, Function]]:
    """Yields the files beside the SavedModel, loaded, each a function from the model's inputs to `answer.main`."""
    if "keras" in run.config.export.formats:
        path = directory / keras_file.KERAS_FILE
        yield path.name, keras_file.load(path, run.config.model, answer)
    if "onnx" in run.config.export.formats:
        path = directory / onnx_file.ONNX_FILE
        yield path.name, onnx_file.load(path, answer)


def _trained(path: Path, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns [n, ...]: what the report has for the examples of these ids."""
    found = read_predictions(path)
    row_of = {id: row for row, id in enumerate(found.ids.tolist())}
    return found.predictions[[row_of[id] for id in ids.tolist()]]


def _batches(num_examples: int, batch_size: int) -> list[slice]:
    """Returns an example alone, then the others in batches: the batch dimension has to be free."""
    starts = [0, *range(1, num_examples, batch_size)]
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], num_examples], strict=True)]
