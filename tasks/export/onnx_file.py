"""The ONNX file: the signature `tensors` without its texts, for ONNX Runtime and others; needs the extra onnx."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from tasks.errors import ExportError
from tasks.export.answer import Answer

ONNX_FILE = "model.onnx"
LABEL_MAP = "label_map"
"""Key of its metadata: the names of what `Answer.main` has in each place, as JSON."""
_OPSET = 18  # of 2022: what runtimes on phones and in browsers know too


def write(model: keras.Model, answer: Answer, path: Path) -> None:
    """Writes a model to `path`: its inputs, by name, in and `answer.main` out, the dimension `batch` free.

    Raises ExportError if an operation of the model has no counterpart, or the file would be over protobuf's 2 GB.
    """
    import onnx
    import tf2onnx

    names = tuple(model.input)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name) for name, tensor in model.input.items()]

    @tf.function(autograph=False, input_signature=specs)
    def answered(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = model(dict(zip(names, tensors, strict=True)), training=False)
        return {answer.main: answer(raw)[answer.main]}

    try:
        converted, _ = tf2onnx.convert.from_function(answered, input_signature=specs, opset=_OPSET)
        for value in (*converted.graph.input, *converted.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
        onnx.helper.set_model_props(converted, {LABEL_MAP: json.dumps(answer.names, ensure_ascii=False)})
        onnx.checker.check_model(converted)
        path.write_bytes(converted.SerializeToString())
    except Exception as error:  # tf2onnx, onnx and protobuf have no common class for it
        raise ExportError(
            f"export.formats: onnx: the model cannot be written ({str(error).strip().partition(chr(10))[0]}); leave "
            "onnx out, or take layers whose operations ONNX has"
        ) from error


def load(path: Path, answer: Answer) -> Callable[..., Mapping[str, NDArray[Any]]]:
    """Returns the model in a file as a function from its inputs, by name, to `answer.main`, on ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def answered(**inputs: tf.Tensor) -> dict[str, NDArray[Any]]:
        [main] = session.run([answer.main], {each.name: inputs[each.name].numpy() for each in session.get_inputs()})
        return {answer.main: main}

    return answered
