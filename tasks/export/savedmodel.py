"""The SavedModel: features in, float32 out, named signatures, a free batch dimension; runs in a worker process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tasks.distribution import OneDevice
from tasks.export import keras_file, onnx_file, warmup
from tasks.export.answer import Answer, make_answer
from tasks.export.examples import first_examples
from tasks.export.manifest import SERIALIZED, SERVING_DEFAULT, TENSORS, SignatureInput
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess
from tasks.feed.signature import Signature
from tasks.models.build import build_model
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.runs import Run, find_run
from tasks.train.precision import set_precision
from tasks.train.restored import restored_model
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy


def write(workspace: str, run_id: str, shards: dict[str, Any], checkpoint: str, directory: str) -> dict[str, Any]:
    """Writes a checkpoint's model to `directory`, in every format; returns inputs and outputs as an ExportManifest has
    them.

    Raises DataError if the checkpoint is damaged, TrainingError if it is another model's, ExportError if the model
    cannot be written in a format.
    """
    progress("export")
    run, found = find_run(Path(workspace), run_id), Shards.model_validate(shards)
    config, manifest = run.config.export, found.manifest()
    open_strategy(OneDevice())  # takes GPU memory as needed; its scope is not entered: the variables stay plain
    model = _float32_model(run, manifest, Path(checkpoint))
    preprocess = Preprocess(manifest, run.config.feed)
    answer = make_answer(manifest, run.config.evaluate.threshold)
    save(model, preprocess, manifest, answer, directory)
    if config.warmup_requests:
        examples = first_examples(run, found, count=config.warmup_requests)
        warmup.write(Path(directory), run.config.name, examples)
    if "onnx" in config.formats:
        progress("export", format="onnx")
        onnx_file.write(model, answer, Path(directory) / onnx_file.ONNX_FILE)
    if "keras" in config.formats:  # last: it changes the model
        keras_file.write(model, Path(directory) / keras_file.KERAS_FILE)
    inputs = {
        preprocess.input_names[name]: SignatureInput(
            feature=name, kind=manifest.features[name].kind, shape=shape, dtype=dtype
        )
        for name, (shape, dtype) in zip(preprocess.names, preprocess.stored.values(), strict=True)
    }
    return {
        "inputs": {name: input.model_dump(mode="json") for name, input in inputs.items()},
        "outputs": {name: output.model_dump(mode="json") for name, output in answer.outputs.items()},
    }


def save(model: keras.Model, preprocess: Preprocess, manifest: ShardManifest, answer: Answer, directory: str) -> None:
    """Writes a SavedModel for `tf.saved_model.load` and TensorFlow Serving.

    Its signatures, which give `answer.outputs`: `serving_default` takes features as they are stored, each of
    `preprocess.stored` under its name, images, texts and categories as [b] string; `tensors` what the model itself
    takes, each of `preprocess.inputs`; `serialized` takes `examples`, [b] string, tf.Examples as they lie in the
    shards.
    """

    def answered(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return answer(model({name: inputs[name] for name in model.input}, training=False))

    feature_of = {input: name for name, input in preprocess.input_names.items()}
    serving_default = tf.function(
        lambda **batch: answered(preprocess({feature_of[input]: value for input, value in batch.items()})),
        autograph=False,
    ).get_concrete_function(**_specs(preprocess.stored))
    tensors = tf.function(lambda **batch: answered(batch), autograph=False).get_concrete_function(
        **_specs(preprocess.inputs)
    )
    serialized = tf.function(
        lambda examples: answered(preprocess(parse_batch(examples, manifest.features, preprocess.names))),
        autograph=False,
    ).get_concrete_function(examples=tf.TensorSpec([None], tf.string, "examples"))

    # Not keras.export.ExportArchive: it writes every weight twice.
    module = tf.Module()
    module.model = model  # what the signatures use must hang on the module: variables, lookup tables
    tf.saved_model.save(
        module, directory, signatures={SERVING_DEFAULT: serving_default, TENSORS: tensors, SERIALIZED: serialized}
    )


def _specs(signature: Signature) -> dict[str, tf.TensorSpec]:
    return {name: tf.TensorSpec([None, *shape], dtype, name) for name, (shape, dtype) in signature.items()}


def _float32_model(run: Run, manifest: ShardManifest, checkpoint: Path) -> keras.Model:
    trained = restored_model(run, manifest, checkpoint, OneDevice())
    if run.config.train.precision != "float64":
        return trained
    set_precision("float32")  # whoever serves wants it; the parity check says what the rounding costs
    preprocess = Preprocess(manifest, run.config.feed)
    model = build_model(run.config.model, preprocess.inputs, manifest.num_outputs, preprocess.num_values)
    for variable, value in zip(model.variables, trained.variables, strict=True):
        variable.assign(tf.cast(value.value, variable.dtype))
    return model
