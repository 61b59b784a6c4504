"""The ONNX file: the signature `tensors` without its texts, for ONNX Runtime and others; needs the extra onnx."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
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
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    names = tuple(model.input)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name) for name, tensor in model.input.items()]

    @tf.function(autograph=False, input_signature=specs)
    def answered(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = model(dict(zip(names, tensors, strict=True)), training=False)
        return {answer.main: answer(raw)[answer.main]}

    try:
        # tf2onnx's own from_function takes constants of a layer, such as the mean of a Normalization, for inputs.
        frozen = convert_variables_to_constants_v2(
            answered.get_concrete_function(), lower_control_flow=False, aggressive_inlining=True
        )
        inputs, [output] = [tensor.name for tensor in frozen.inputs], [tensor.name for tensor in frozen.outputs]
        converted, _ = tf2onnx.convert.from_graph_def(
            frozen.graph.as_graph_def(add_shapes=True),
            input_names=inputs,
            output_names=[output],
            tensors_to_rename=dict(zip(inputs, names, strict=True)) | {output: answer.main},
            opset=_OPSET,
            custom_op_handlers={"Erfc": (_convert_erfc, [])},
        )
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


def _convert_erfc(context: Any, node: Any, name: str, args: list[Any]) -> Any:
    """Makes an Erfc, which gelu is written with and tf2onnx does not know, 1 - Erf."""
    from tf2onnx.utils import map_onnx_to_numpy_type

    dtype, shape, inputs = context.get_dtype(node.output[0]), context.get_shape(node.output[0]), list(node.input)
    one = context.make_const(f"{name}/one", np.ones((), map_onnx_to_numpy_type(dtype)))
    context.remove_node(node.name)
    erf = context.make_node("Erf", inputs, name=f"{name}/erf", shapes=[shape], dtypes=[dtype])
    return context.make_node(
        "Sub", [one.output[0], erf.output[0]], outputs=node.output, name=name, shapes=[shape], dtypes=[dtype]
    )


def load(path: Path, answer: Answer) -> Callable[..., Mapping[str, NDArray[Any]]]:
    """Returns the model in a file as a function from its inputs, by name, to `answer.main`, on ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def answered(**inputs: tf.Tensor) -> dict[str, NDArray[Any]]:
        [main] = session.run([answer.main], {each.name: inputs[each.name].numpy() for each in session.get_inputs()})
        return {answer.main: main}

    return answered
