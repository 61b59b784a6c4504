"""The exported model makes of raw features exactly what the feed makes of them in training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tasks.config import FeedConfig
from tasks.export import onnx_file, warmup
from tasks.export.answer import OneClass
from tasks.export.examples import Examples
from tasks.export.savedmodel import save
from tasks.feed.feed import evaluation_feed
from tasks.feed.preprocess import Preprocess
from tasks.texts import BytesText, WordsText
from tests.every_kind import STATISTICS, make_example, serialize, write_every_kind

NUM_EXAMPLES = 60
QUANTILES = {"0.05": 2.0, "0.5": 4.0, "0.95": 6.0}
CONFIG = FeedConfig(image_size=(4, 4), clip_quantiles=(0.05, 0.95), max_categories=2, block=64)


def bare_model(preprocess: Preprocess) -> keras.Model:
    """Returns a model whose logits are its inputs, so that equal probabilities are equal inputs."""
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in preprocess.inputs.items()}
    flat = [keras.layers.Flatten()(keras.ops.cast(value, "float32")) for value in inputs.values()]
    return keras.Model(inputs, keras.ops.concatenate(flat, axis=1) / 256)


@pytest.mark.parametrize("text", [BytesText(length=6), WordsText(max_words=5)], ids=["bytes", "words"])
def test_raw_inputs_become_the_same_through_the_feed_and_through_the_export(tmp_path, text):
    shards = write_every_kind(tmp_path / "shards", {"test": NUM_EXAMPLES})
    count = STATISTICS["count"].model_copy(update={"quantiles": QUANTILES})
    manifest = shards.manifest().model_copy(update={"statistics": STATISTICS | {"count": count}})
    config = CONFIG.model_copy(update={"text": text})
    preprocess = Preprocess(manifest, config)
    model = bare_model(preprocess)
    manifest = manifest.model_copy(update={"label_map": tuple(map(str, range(model.output_shape[1])))})
    save(model, preprocess, manifest, OneClass(manifest.label_map), str(tmp_path / "model"))

    feed = evaluation_feed(shards.directory, manifest, "test", config, batch_size=NUM_EXAMPLES, num_replicas=1)
    [batch] = feed.one_pass()
    seen = tf.nn.softmax(model({name: batch[name] for name in preprocess.inputs}, training=False)).numpy()
    assert len(np.unique(seen, axis=0)) == NUM_EXAMPLES, "every example is another"

    examples = [make_example(id) for id in range(NUM_EXAMPLES)]
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    raw = {
        preprocess.input_names[name]: tf.constant([example[name] for example in examples], dtype)
        for name, (_, dtype) in zip(preprocess.names, preprocess.stored.values(), strict=True)
    }
    tensors = {name: batch[name] for name in preprocess.inputs}
    records = tf.constant([serialize(example) for example in examples])
    arguments = {"serving_default": raw, "tensors": tensors, "serialized": {"examples": records}}
    for name, given in arguments.items():
        assert np.array_equal(loaded.signatures[name](**given)["probabilities"], seen), name

    onnx_file.write(model, OneClass(manifest.label_map), tmp_path / "model.onnx")
    run = onnx_file.load(tmp_path / "model.onnx", OneClass(manifest.label_map))
    np.testing.assert_allclose(run(**tensors)["probabilities"], seen, rtol=0, atol=1e-6)

    warmup.write(tmp_path / "model", "every_kind", Examples(np.arange(2), arguments))
    assert replayed(tmp_path / "model", loaded, seen) == [(name, row) for name in arguments for row in range(2)]


def replayed(directory, loaded, seen):
    """Returns the signature and the row of `seen` of each warm-up request, by what the signature answers to it."""
    found = []
    for record in tf.data.TFRecordDataset(str(directory / warmup.WARMUP)):
        request = PredictionLog.FromString(record.numpy()).predict_log.request
        signature = request.model_spec.signature_name
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        [row] = np.flatnonzero((seen == loaded.signatures[signature](**inputs)["probabilities"].numpy()).all(axis=1))
        found.append((signature, row))
    return found
