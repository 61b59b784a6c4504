"""The operations of a step are those of its matrix products and convolutions, counted by hand."""

import keras
import pytest

from tasks.models import cnn
from tasks.train.flops import forward_flops, peak_flops


def model_of(shape, build, dtype="float32"):
    inputs = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model({"x": inputs}, build(inputs))


def test_the_operations_of_convolutions_and_dense_layers_are_two_for_each_product():
    model = cnn.build({"image": keras.Input((8, 8, 1), dtype="uint8", name="image")}, 10)
    assert forward_flops(model) == 2 * (64 * 32 * 9 + 16 * 64 * 9 * 32 + 256 * 128 + 128 * 10)


def test_groups_depthwise_and_transposed_convolutions_are_counted():
    def build(x):
        x = keras.layers.DepthwiseConv2D(3, padding="same")(x)
        x = keras.layers.Conv2D(8, 3, groups=2, padding="same")(x)
        return keras.layers.Conv2DTranspose(5, 3, strides=2, padding="same")(x)

    assert forward_flops(model_of((8, 8, 4), build)) == 2 * (64 * 4 * 9 + 64 * 8 * 9 * 2 + 64 * 8 * 9 * 5)


def test_attention_is_counted():
    def build(x):
        x = keras.layers.Embedding(50, 8)(x)
        return keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)(x, x)

    assert forward_flops(model_of((16,), build, "int64")) == 2 * (4 * 16 * 8 * 8 + 2 * 16 * 16 * 4 * 2)


@pytest.mark.parametrize("build", [keras.layers.GRU(4), keras.layers.LSTM(4)], ids=["gru", "lstm"])
def test_what_cannot_be_counted_is_not_guessed(build):
    assert forward_flops(model_of((16, 8), build)) is None


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", "mixed_bfloat16", 312e12),
        ("NVIDIA A100-SXM4-40GB", "float32", 156e12),
        ("NVIDIA A100-SXM4-40GB", "float64", None),
        ("NVIDIA H100 80GB HBM3", "mixed_float16", 989e12),
        ("NVIDIA H100 PCIe", "mixed_float16", 756e12),
        ("NVIDIA L40S", "mixed_float16", 362e12),
        ("NVIDIA L4", "mixed_float16", 121e12),
        ("Tesla V100-PCIE-16GB", "float32", 14e12),
        ("Tesla T4", "mixed_bfloat16", None),
        ("NVIDIA GeForce RTX 4090", "mixed_float16", None),
    ],
)
def test_the_peak_is_that_of_the_gpus_name_and_of_the_precision_or_unknown(name, precision, peak):
    assert peak_flops(name, precision) == peak
