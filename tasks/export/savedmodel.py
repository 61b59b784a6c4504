"""The SavedModel: float32, named signatures, a free batch dimension; runs in a worker process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tasks.config import OneDevice
from tasks.export.manifest import SERIALIZED, SERVING_DEFAULT
from tasks.feed.parse import parse_batch
from tasks.models.build import build_model
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.runs import Run, find_run
from tasks.train.restored import restored_model
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy


def write(workspace: str, run_id: str, shards: dict[str, Any], checkpoint: str, directory: str) -> dict[str, Any]:
    """Writes a checkpoint's model to `directory`, for `tf.saved_model.load` and TensorFlow Serving; returns nothing.

    Its signatures, which give `probabilities` [b, num_classes] float32, `class` [b] int64 and `label` [b] string:
    `serving_default` takes each input of the model under its own name, [b, *shape] in the feature's dtype;
    `serialized` takes `examples`, [b] string, tf.Examples as they lie in the shards.

    Raises DataError if the checkpoint is damaged, TrainingError if it is another model's.
    """
    progress("export")
    run, manifest = find_run(Path(workspace), run_id), Shards.model_validate(shards).manifest()
    open_strategy(OneDevice())  # takes GPU memory as needed; its scope is not entered: the variables stay plain
    model = _float32_model(run, manifest, Path(checkpoint))

    classify = _classifier(model, manifest)
    names = tuple(model.input)
    inputs = {name: manifest.features[name] for name in names}
    serving_default = tf.function(lambda **batch: classify(batch)).get_concrete_function(
        **{name: tf.TensorSpec([None, *feature.shape], feature.dtype, name) for name, feature in inputs.items()}
    )
    serialized = tf.function(
        lambda examples: classify(parse_batch(examples, manifest.features, names))
    ).get_concrete_function(examples=tf.TensorSpec([None], tf.string, "examples"))

    # Not keras.export.ExportArchive: it writes every weight twice.
    module = tf.Module()
    module.model = model  # what the signatures use must hang on the module: variables, lookup tables
    tf.saved_model.save(module, directory, signatures={SERVING_DEFAULT: serving_default, SERIALIZED: serialized})
    return {}


def _float32_model(run: Run, manifest: ShardManifest, checkpoint: Path) -> keras.Model:
    trained = restored_model(run, manifest, checkpoint)
    if run.config.train.precision == "float32":
        return trained
    # Whoever serves wants float32; the parity check says what the rounding costs.
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    model = build_model(run.config.model, manifest)
    for variable, value in zip(model.variables, trained.variables, strict=True):
        variable.assign(tf.cast(value.value, variable.dtype))
    return model


def _classifier(model: keras.Model, manifest: ShardManifest) -> Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]:
    """Returns the function from the model's inputs to the outputs of every signature."""
    label_map = tf.constant(manifest.label_map)

    def classify(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(model(batch, training=False))
        classes = tf.argmax(probabilities, axis=1)
        return {"probabilities": probabilities, "class": classes, "label": tf.gather(label_map, classes)}

    return classify
