"""Work: the floating-point operations of a training step, and how many its devices could do in a second."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import keras
import tensorflow as tf

from tasks.train.setup import Setup
from tasks.workers.devices import gpu_names

BACKWARD = 2  # times the forward pass: once for the inputs' gradients and once for the weights'

# Dense tensor-core peaks in TFLOP/s of 16 bits and of float32 (which TensorFlow runs as TF32 from Ampere on), from
# NVIDIA's data sheets of these products; figures with sparsity are halved. The first name that is found counts.
PEAKS: tuple[tuple[str, float, float], ...] = (
    ("H200", 989, 494),
    ("H100 PCIe", 756, 378),
    ("H100 NVL", 835, 417),
    ("H100", 989, 494),
    ("L40S", 362, 183),
    ("L4", 121, 60),
    ("A100", 312, 156),
    ("A10", 125, 62.5),
    ("T4", 65, 8.1),
    ("V100-PCIE", 112, 14),
    ("V100", 125, 15.7),
)
WITH_BFLOAT16 = ("H", "L", "A")  # T4 and V100 have no tensor cores for it


class Work(NamedTuple):
    """What throughput is related to."""

    num_replicas: int = 1
    flops_per_example: float | None = None
    """Of forward and backward pass; None where they cannot be counted."""
    flops_per_step: float | None = None
    """Of a full global batch."""
    peak_flops: float | None = None
    """Of the devices that take batches, in a second; None on CPUs and for GPUs that are not in PEAKS."""


def work_of(setup: Setup) -> Work:
    """Returns the work of a training's step."""
    forward, peak = forward_flops(setup.model), None
    each = None if forward is None else forward * (1 + BACKWARD)
    num_replicas, names = len(setup.devices), gpu_names(setup.strategy)
    peaks = [peak_flops(name, setup.precision) for name in names]
    known = [value for value in peaks if value is not None]
    if names and len(known) == len(peaks):
        peak = sum(known) / len(known) * num_replicas
    return Work(num_replicas, each, None if each is None else each * setup.feed.global_batch_size, peak)


def forward_flops(model: keras.Model) -> float | None:
    """Returns the floating-point operations of the matrix products and convolutions of one example's forward pass.

    A product and a sum are two. What is done element by element is left out, as is usual. None if there is something
    that cannot be counted: a loop or condition in the graph, as recurrent layers have them, or a shape that only a run
    tells.
    """
    specs = {name: tf.TensorSpec([1, *tensor.shape[1:]], tensor.dtype) for name, tensor in model.input.items()}
    run = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    graph = run.get_concrete_function(specs).graph
    counted = [_flops(operation) for operation in _operations(graph)]
    known = [flops for flops in counted if flops is not None]
    return sum(known) if len(known) == len(counted) else None


def peak_flops(name: str, precision: str) -> float | None:
    """Returns the operations in a second of which a GPU of this name is capable; None if that is not known."""
    for known, half, single in PEAKS:
        if re.search(rf"\b{known}\b", name):
            match precision:
                case "float32":
                    return single * 1e12
                case "mixed_float16":
                    return half * 1e12
                case "mixed_bfloat16" if known.startswith(WITH_BFLOAT16):
                    return half * 1e12
            return None
    return None


def _operations(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Yields those of a graph, and of the functions that it calls once: Keras has one for convolutions in groups."""
    for operation in graph.get_operations():
        if operation.type in {"PartitionedCall", "StatefulPartitionedCall"}:
            # A private name of TensorFlow, which a test watches.
            yield from _operations(graph._get_function(operation.get_attr("f").name).graph)
        else:
            yield operation


def _flops(operation: tf.Operation) -> float | None:
    if operation.type in UNCOUNTABLE:
        return None
    return COUNTS[operation.type](operation) if operation.type in COUNTS else 0.0


def _product(shape: tf.TensorShape) -> float | None:
    return float(math.prod(shape)) if shape.is_fully_defined() else None


def _times(*factors: float | None) -> float | None:
    """Returns two operations for each of the factors' product; None if one is unknown."""
    known = [factor for factor in factors if factor is not None]
    return 2 * math.prod(known) if len(known) == len(factors) else None


def _matmul(operation: tf.Operation) -> float | None:
    left = operation.inputs[0].shape
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return _times(_product(operation.outputs[0].shape), left[-2 if transposed else -1])


def _convolution(operation: tf.Operation) -> float | None:
    return _times(_product(operation.outputs[0].shape), _product(operation.inputs[1].shape[:-1]))


def _depthwise(operation: tf.Operation) -> float | None:
    return _times(_product(operation.outputs[0].shape), _product(operation.inputs[1].shape[:2]))


def _transposed(operation: tf.Operation) -> float | None:
    _, weights, rows = operation.inputs
    return _times(_product(rows.shape), _product(weights.shape[:-1]))


def _einsum(operation: tf.Operation) -> float | None:
    """Counts one product and sum for each combination of the indices, an ellipsis being the leading dimensions."""
    terms = operation.get_attr("equation").decode().partition("->")[0].split(",")
    if len(terms) == 1:
        return 0.0
    sizes: dict[str, int | None] = {}
    ellipsis: float | None = 1.0
    for term, tensor in zip(terms, operation.inputs, strict=True):
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        sizes |= zip(before, tensor.shape[: len(before)], strict=True)
        if dots:
            stop = tensor.shape.rank - len(after)
            shared = _product(tensor.shape[len(before) : stop])
            ellipsis = None if shared is None or ellipsis is None else max(ellipsis, shared)
        sizes |= zip(after, tensor.shape[tensor.shape.rank - len(after) :], strict=True)
        assert named <= tensor.shape.rank
    return _times(ellipsis, *sizes.values())


COUNTS: Mapping[str, Callable[[tf.Operation], float | None]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    **dict.fromkeys(("Conv2D", "Conv3D"), _convolution),
    "DepthwiseConv2dNative": _depthwise,
    "Conv2DBackpropInput": _transposed,
    "Einsum": _einsum,
}
UNCOUNTABLE = frozenset(
    {
        *("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"),
        *("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "XlaCallModule"),
        *("Conv3DBackpropInputV2", "Conv", "SparseTensorDenseMatMul"),
    }
)
