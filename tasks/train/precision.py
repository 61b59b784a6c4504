"""Precision: in which float types a process computes, and how they are chosen by device."""

from collections.abc import Sequence

import keras

AUTO_PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")  # what auto may come to


def resolve_precision(requested: str, compute_capabilities: Sequence[tuple[int, int]]) -> str:
    """Returns `requested`, or for auto what GPUs of these compute capabilities are fast in; there are none on a CPU."""
    if requested != "auto":
        return requested
    weakest = min(compute_capabilities, default=(0, 0))
    if weakest >= (8, 0):  # Ampere: bfloat16, whose range is float32's, so that it needs no loss scale
        return "mixed_bfloat16"
    if weakest >= (7, 0):  # Volta: the first with float16 tensor cores
        return "mixed_float16"
    return "float32"


def precision_of_weights(precision: str) -> str:
    """Returns float64 or float32, in which the weights are held: a model computes in it when it is judged or served."""
    return "float64" if precision == "float64" else "float32"


def set_precision(precision: str) -> None:
    """Sets the types of this process's weights and layers; call it before a model is built."""
    keras.config.set_floatx(precision_of_weights(precision))
    keras.config.set_dtype_policy(precision)
