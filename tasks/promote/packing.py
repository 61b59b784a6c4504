"""The packing: what MLflow needs to know of a SavedModel, to register it and to serve it."""

from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec

from tasks.export.manifest import ExportManifest, SignatureInput

PYFUNC_MODEL = Path(__file__).with_name("pyfunc_model.py")


def signature(exported: ExportManifest) -> ModelSignature:
    """Returns the types and shapes of the SavedModel's `serving_default`."""
    inputs = [TensorSpec(mlflow_dtype(input), (-1, *input.shape), name) for name, input in exported.inputs.items()]
    outputs = [
        TensorSpec(np.dtype("str" if output.dtype == "string" else output.dtype), (-1, *output.shape), name)
        for name, output in exported.outputs.items()
    ]
    return ModelSignature(Schema(inputs), Schema(outputs))


def mlflow_dtype(input: SignatureInput) -> np.dtype[Any]:
    """Returns the type that MLflow is to know an input by.

    It has none for bytes that survives its JSON: an object may be bytes in Python and is base64 over HTTP.
    """
    if input.dtype != "string":
        return np.dtype(input.dtype)
    return np.dtype(object) if input.kind == "image" else np.dtype("str")
