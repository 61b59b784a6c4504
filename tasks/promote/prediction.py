"""The prediction's worker: a SavedModel from the registry answers the examples in files."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tasks.errors import DataError
from tasks.export.manifest import SERVING_DEFAULT, ExportManifest
from tasks.promote.fetched import fetch_model
from tasks.promote.raw_inputs import read_examples
from tasks.promote.record import Prediction, Predictions
from tasks.workers.child import progress


def predict(reference: str, uri: str, files: list[str]) -> dict[str, Any]:
    """Returns Predictions, as JSON; raises what `fetch_model` and `read_examples` do."""
    progress("predict")
    with tempfile.TemporaryDirectory(prefix="millstream-predict-") as folder:
        model, exported = fetch_model(reference, uri, Path(folder))
        examples = [(file, example) for file in files for example in read_examples(Path(file), exported.inputs)]
        loaded = tf.saved_model.load(str(exported.directory))  # holds the variables as long as the signature is used
        signature = loaded.signatures[SERVING_DEFAULT]
        predictions = []
        for _, example in examples:
            arguments = {
                name: tf.constant([example.values[name]], input.dtype) for name, input in exported.inputs.items()
            }
            try:
                answer = {name: output.numpy()[0] for name, output in signature(**arguments).items()}
            except tf.errors.InvalidArgumentError as error:
                raise DataError(f"{example.source}: the model does not take it ({_reason(error)})") from None
            predictions.append(_prediction(example.source, answer, exported))
            progress("predict", num_examples=len(predictions))
    left_out = {file: example.left_out for file, example in examples if example.left_out}
    notes = tuple(f"{file}: no inputs of the model: {', '.join(names)}" for file, names in left_out.items())
    return Predictions(model=model, predictions=tuple(predictions), notes=notes).model_dump(mode="json")


def _prediction(source: str, answer: dict[str, Any], exported: ExportManifest) -> Prediction:
    main = next(iter(exported.outputs))
    outputs = dict(zip(exported.label_map, answer[main].tolist(), strict=True))
    if main == "values":
        return Prediction(source=source, label=None, probability=None, outputs=outputs)
    one = np.ndim(answer["class"]) == 0
    return Prediction(
        source=source,
        label=answer["label"].decode(),
        probability=float(answer[main][answer["class"]]) if one else None,
        outputs=outputs,
    )


def _reason(error: tf.errors.OpError) -> str:
    """Returns what TensorFlow says, without the graph's nodes and their traceback."""
    said: str = error.message.partition("\n\t [[")[0].splitlines()[-1]
    return said
