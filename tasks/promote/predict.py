"""The prediction: a worker loads a registered model and answers files, for a quick look without a server."""

import os
from collections.abc import Sequence
from pathlib import Path

from tasks.promote.record import Predictions
from tasks.track.client import default_uri
from tasks.workers import launch

# A quick look takes no GPU from a training, unless it is given one.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def predict(reference: str, files: Sequence[Path], workspace: Path) -> Predictions:
    """Returns what the registered model NAME, NAME@alias or NAME/version answers to the examples in files.

    Raises what `fetch_model` and `read_examples` do, and DataError for what the model itself does not take.
    """
    result = launch.call(
        "tasks.promote.prediction:predict",
        {"reference": reference, "uri": default_uri(workspace), "files": [str(file) for file in files]},
        log=workspace / "predict.log",
        environments=[ENVIRONMENT | {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}],
    )
    return Predictions.model_validate(result)
