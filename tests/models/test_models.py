"""The models that come with millstream: what they compute is the same on any number of replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.models.build import build_model
from tasks.models.rows import ReplicaRows, replica_rows

TABLE = {"price": ((1,), "float32"), "cut": ((5,), "float32"), "pixels": ((2, 2, 1), "uint8")}
TEXT = {"name": ((12,), "uint8")}
WORDS = {"name": ((12,), "int32")}
IMAGE = {"image": ((16, 16, 3), "uint8")}
MODELS = {"tabular": TABLE, "text": TEXT, "words": WORDS, "transformer": TEXT, "resnet": IMAGE}
NUM_VALUES = {"text": {"name": 256}, "words": {"name": 300}, "transformer": {"name": 256}}


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def mixed(request):
    keras.config.set_dtype_policy(request.param)
    keras.utils.set_random_seed(1)
    yield
    keras.config.set_dtype_policy("float32")


def model_of(name, **args):
    module = "text" if name == "words" else name
    config = ModelConfig(build=f"tasks.models.{module}:build", args=args)
    return build_model(config, MODELS[name], 3, NUM_VALUES.get(name, {}))


def batch_of(inputs, count):
    rng = np.random.default_rng(count)
    return {
        name: rng.integers(0, 256, (count, *shape)).astype(dtype)
        if dtype in ("uint8", "int32")
        else rng.normal(size=(count, *shape))
        for name, (shape, dtype) in inputs.items()
    }


def gradients(model, batch, labels, rows, *, first_row):
    """Returns what a replica with these rows of a global batch contributes to the sum of the gradients."""
    replica = ReplicaRows(
        7, tf.constant(3, tf.int64), tf.constant(first_row, tf.int64), tf.ones(rows.stop - rows.start, tf.bool), 1
    )
    with tf.GradientTape() as tape, replica_rows(replica):
        logits = model({name: tf.constant(value[rows]) for name, value in batch.items()}, training=True)
        losses = keras.losses.sparse_categorical_crossentropy(labels[rows], logits, from_logits=True)
        loss = tf.reduce_sum(losses)
    return [tf.convert_to_tensor(found) for found in tape.gradient(loss, [v.value for v in model.trainable_variables])]


@pytest.mark.parametrize("name", ["tabular", "text", "words", "transformer"])
def test_the_gradients_of_two_replicas_add_up_to_those_of_one(name, float64):
    model, batch, labels = model_of(name, dropout=0.4), batch_of(MODELS[name], 7), np.array([0, 1, 2, 0, 1, 2, 0])
    one = gradients(model, batch, labels, slice(0, 7), first_row=0)
    first = gradients(model, batch, labels, slice(0, 4), first_row=0)
    second = gradients(model, batch, labels, slice(4, 7), first_row=4)
    for whole, left, right in zip(one, first, second, strict=True):
        assert np.abs(whole - (left + right)).max() <= 1e-12
    assert all(np.abs(whole).max() > 0 for whole in one), "each variable is learned"


def test_the_logits_of_a_text_do_not_depend_on_the_room_behind_it(float64):
    short = model_of("text")
    build = ModelConfig(build="tasks.models.text:build")
    long = build_model(build, {"name": ((40,), "uint8")}, 3, {"name": 256})
    long.set_weights(short.get_weights())
    text = np.zeros((2, 40), np.uint8)
    text[0, :12] = np.frombuffer("größer als".encode(), np.uint8)  # ends where the room of `short` does
    difference = short({"name": text[:, :12]}) - long({"name": text})
    assert np.abs(difference).max() <= 1e-12


@pytest.mark.parametrize(
    ("depth", "stem", "size", "num_parameters"),
    [(18, "large", 224, 11_689_512), (50, "large", 224, 25_557_032), (18, "small", 32, None)],
)
def test_a_resnet_has_the_parameters_that_it_is_known_for(depth, stem, size, num_parameters):
    num_classes = 1000 if num_parameters else 10
    config = ModelConfig(build="tasks.models.resnet:build", args={"depth": depth, "stem": stem})
    model = build_model(config, {"image": ((size, size, 3), "uint8")}, num_classes, {})
    trainable = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert trainable == (num_parameters or 11_173_962)


def test_weight_decay_is_half_the_sum_of_squares_of_the_kernels(float64):
    model = model_of("resnet", depth=18, stem="small", width=4, weight_decay=0.1)
    kernels = [variable for variable in model.trainable_variables if variable.name == "kernel"]
    expected = 0.05 * sum(float(np.square(kernel).sum()) for kernel in kernels)
    assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-7)  # Keras keeps the factor in float32
    assert len(kernels) == 21  # 17 convolutions of 3x3, 3 projections, the last layer


@pytest.mark.parametrize(
    ("name", "args", "inputs", "message"),
    [
        ("text", {}, TEXT | TABLE, "takes one text, but the data has the inputs name, price, cut, pixels"),
        ("resnet", {"depth": 19}, IMAGE, "depth 18, 34, 50, 101, 152 and stem large or small; it got image, depth 19"),
    ],
)
def test_data_or_arguments_that_do_not_fit_are_refused(name, args, inputs, message):
    with pytest.raises(ConfigError, match=message):
        build_model(ModelConfig(build=f"tasks.models.{name}:build", args=args), inputs, 3, NUM_VALUES["text"])


@pytest.mark.parametrize("name", MODELS)
def test_in_mixed_precision_weights_logits_and_gradients_are_float32(name, mixed):
    model = model_of(name, **({"depth": 18, "stem": "small", "width": 4} if name == "resnet" else {}))
    layers = [layer.compute_dtype for layer in model.layers if layer.trainable_variables]
    assert {"float16", "bfloat16"} & set(layers[:-1]), "computed in 16 bits"
    # The seeds that Keras's attention keeps are not drawn from.
    assert {variable.dtype for variable in model.variables if "seed" not in variable.path} == {"float32"}
    assert model.output.dtype == "float32"
    found = gradients(model, batch_of(MODELS[name], 4), np.array([0, 1, 2, 0]), slice(0, 4), first_row=0)
    assert {gradient.dtype for gradient in found} == {tf.float32}
    assert all(np.isfinite(gradient).all() for gradient in found)
