"""The pyfunc model: an exported SavedModel as MLflow loads and serves it.

MLflow keeps this file itself beside the SavedModel, so it needs TensorFlow and nothing of ours.
"""

import base64
from typing import Any

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException


class SavedModel(mlflow.pyfunc.PythonModel):
    """Calls the signature `serving_default`."""

    def load_context(self, context: Any) -> None:
        """Loads the SavedModel."""
        import tensorflow as tf

        self._loaded = tf.saved_model.load(context.artifacts["saved_model"])
        self._function = self._loaded.signatures["serving_default"]

    # Without type hints: MLflow would take one for the type of a row, and knows none for a dict of arrays.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        """Returns {output: array [n, ...]} of {input: array}; text is str, an image bytes (in JSON base64).

        Raises MlflowException, which a server answers with 400, for what the model does not take.
        """
        import tensorflow as tf

        _, specs = self._function.structured_input_signature
        try:
            tensors = {name: tf.constant(_stored(model_input[name]), spec.dtype) for name, spec in specs.items()}
            outputs = self._function(**tensors)
        except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
            said = str(error).partition("\n\t [[")[0].splitlines()[-1]  # without the graph's nodes and their traceback
            raise MlflowException.invalid_parameter_value(f"the model does not take it: {said}") from error
        return {name: _plain(output.numpy()) for name, output in outputs.items()}


def _stored(values: Any) -> np.ndarray:
    """Returns an input as the SavedModel takes it.

    Text has come as numpy's str, because the model's signature says so. What comes as objects is images: bytes from
    Python, and from JSON, which has no bytes, base64.
    """
    array = np.asarray(values)
    if array.dtype != object:
        return array
    return np.array(
        [base64.b64decode(value, validate=True) if isinstance(value, str) else value for value in array], object
    )


def _plain(array: np.ndarray) -> np.ndarray:
    return np.char.decode(array.astype(bytes), "utf-8") if array.dtype == object else array


mlflow.models.set_model(SavedModel())
