"""What TensorFlow Serving does with a directory when it starts, in a worker: it takes the highest number there."""

from pathlib import Path

import tensorflow as tf


def load_highest(directory):
    """Returns the number and, by signature, the names of inputs and outputs."""
    # Only digits make a version of a folder, and a version is a SavedModel for the tag of serving.
    number = max(int(path.name) for path in Path(directory).iterdir() if path.name.isdigit())
    model = tf.saved_model.load(f"{directory}/{number}", tags=["serve"])
    signatures = {
        name: [sorted(signature.structured_input_signature[1]), sorted(signature.structured_outputs)]
        for name, signature in model.signatures.items()
    }
    return {"number": number, "signatures": signatures}
