"""The networks of keras.applications, and layers that are not trained."""

import keras
import numpy as np
import pytest

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.models.build import build_model
from tasks.models.patches import varying_layers

IMAGE = {"image": ((32, 32, 3), "uint8")}
SMALL = {"name": "MobileNetV2", "alpha": 0.35}


def built(inputs=IMAGE, freeze=(), **args):
    return build_model(
        ModelConfig(build="tasks.models.applications:build", args={**SMALL, **args}, freeze=freeze), inputs, 5, {}
    )


@pytest.fixture(scope="module")
def frozen():
    return built(freeze=("^Conv1$", "^bn_Conv1", "_depthwise"), dropout=0.2)


def test_a_network_is_built_by_name_with_its_own_preprocessing_inside(frozen):
    image = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    first = keras.Model(frozen.input, frozen.get_layer("Conv1").output)
    bare = keras.applications.mobilenet_v2.preprocess_input(image.astype(np.float32))
    np.testing.assert_allclose(first({"image": image}), frozen.get_layer("Conv1")(bare), atol=1e-5)
    assert frozen({"image": image}).shape == (2, 5)
    assert varying_layers(frozen) == []


def test_frozen_layers_are_those_in_whose_path_a_pattern_is_found(frozen):
    trained = {variable.path.partition("/")[0] for variable in frozen.trainable_variables}
    assert not {name for name in trained if name in ("Conv1", "bn_Conv1") or "_depthwise" in name}
    assert {"block_1_expand", "block_1_expand_BN", "Conv_1"} <= trained
    assert not frozen.get_layer("block_3_depthwise_BN").trainable


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"name": "ResNet51"}, "model.args.name='ResNet51' is none of ConvNeXtBase, .*ResNet50,"),
        ({"weights": "imagenet"}, "must be null, because Keras would fetch .* model.warm_start"),
        ({"alphas": 1}, r"MobileNetV2 does not take \(32, 32, 3\) or model.args={'alpha': 0.35, 'alphas': 1}"),
        ({"inputs": {"image": ((32, 32, 3), "uint8"), "x": ((1,), "float32")}}, "takes one image"),
        ({"freeze": ("Conv2",)}, "model.freeze: 'Conv2' is found in none of Conv1, bn_Conv1"),
        ({"freeze": ("",)}, r"model.freeze=\[''\]: leaves nothing"),
    ],
)
def test_what_does_not_fit_is_refused(args, message):
    with pytest.raises(ConfigError, match=message):
        built(**args)


def test_a_pattern_that_is_none_is_refused_with_the_config():
    with pytest.raises(ValueError, match=r"freeze.*\n.*must be a regular expression \(unterminated"):
        ModelConfig(freeze=("[",))
