"""The warm-up: real requests that TensorFlow Serving sends to a model before it takes others; needs the extra serve."""

from pathlib import Path

import tensorflow as tf

from tasks.export.examples import Examples

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
"""Where TensorFlow Serving looks for them in a SavedModel."""


def write(directory: Path, name: str, examples: Examples) -> None:
    """Writes a TFRecord file of PredictionLogs: a request for each signature and each of `examples`, one example each.

    `name` is the model's in them; TensorFlow Serving sends them to the version that it loads.
    """
    from tensorflow_serving.apis.model_pb2 import ModelSpec
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

    path = directory / WARMUP
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, arguments in examples.arguments.items():
            for row in range(len(examples.ids)):
                request = PredictRequest(
                    model_spec=ModelSpec(name=name, signature_name=signature),
                    inputs={
                        argument: tf.make_tensor_proto(value[row : row + 1].numpy())
                        for argument, value in arguments.items()
                    },
                )
                writer.write(PredictionLog(predict_log=PredictLog(request=request)).SerializeToString())
