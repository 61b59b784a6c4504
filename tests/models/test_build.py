"""The user's model is found by its import path, looked at, and its code is part of the run's key."""

import pytest

from tasks.config import ModelConfig
from tasks.errors import ConfigError
from tasks.models.build import build_model, code_digest

INPUTS = {"image": ((8, 8, 1), "uint8")}
MODEL = """
import keras
import layers_of_mine

def build(inputs, num_classes, width=8):
    x = keras.layers.Flatten()(inputs["image"])
    return keras.Model(inputs, keras.layers.Dense(num_classes)(keras.layers.Dense(width)(x)))

def wrong_shape(inputs, num_classes):
    return keras.Model(inputs, keras.layers.Flatten()(inputs["image"]))

def bare_input(inputs, num_classes):
    x = keras.layers.Flatten()(inputs["image"])
    return keras.Model(inputs["image"], keras.layers.Dense(num_classes)(x))

def bytecode(inputs, num_classes):
    inner = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Lambda(lambda x: x / 16, name="scale")])
    x = keras.layers.Flatten()(inner(inputs["image"]))
    return keras.Model(inputs, keras.layers.Dense(num_classes)(x))

def no_model(inputs, num_classes):
    return None
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model_of_mine.py").write_text(MODEL)
    (tmp_path / "layers_of_mine.py").write_text("WIDTH = 3\n")
    (tmp_path / "unrelated.py").write_text("")
    return tmp_path


def test_the_digest_follows_the_modules_own_imports_and_nothing_else(folder):
    config = ModelConfig(build="model_of_mine:build", folder=str(folder))
    before = code_digest(config)
    (folder / "unrelated.py").write_text("x = 1\n")
    assert code_digest(config) == before
    (folder / "layers_of_mine.py").write_text("WIDTH = 4\n")
    after = code_digest(config)
    (folder / "model_of_mine.py").write_text(MODEL.replace("width=8", "width=9"))
    assert len({before, after, code_digest(config)}) == 3


def test_an_installed_model_takes_no_other_installed_package_into_the_digest(folder, monkeypatch):
    monkeypatch.setattr("tasks.source_code._INSTALLED", {folder})
    config = ModelConfig(build="model_of_mine:build", folder=str(folder))
    before = code_digest(config)
    (folder / "layers_of_mine.py").write_text("WIDTH = 4\n")
    assert code_digest(config) == before


def test_a_source_file_that_is_not_python_is_named_with_its_line(folder):
    (folder / "layers_of_mine.py").write_text("WIDTH = 3\ndef f()\n")
    with pytest.raises(ConfigError, match=r"layers_of_mine\.py, line 2: not valid Python: expected ':'"):
        code_digest(ModelConfig(build="model_of_mine:build", folder=str(folder)))


def test_a_module_that_is_not_there_is_named(folder):
    with pytest.raises(ConfigError, match="no module 'model_of_yours'"):
        code_digest(ModelConfig(build="model_of_yours:build", folder=str(folder)))


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        ("missing", {}, "has no attribute 'missing'"),
        ("build", {"wdith": 3}, "got an unexpected keyword argument 'wdith'"),
        ("wrong_shape", {}, r"must be logits of shape \(None, 10\)"),
        ("bare_input", {}, r"end it with keras.Model\(inputs, ...\), inputs being the dict of image"),
        ("bytecode", {}, "scale: a Lambda layer is saved as Python bytecode, .* take keras.ops"),
        ("no_model", {}, "returned NoneType, not a keras.Model"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(folder, function, args, message):
    config = ModelConfig(build=f"model_of_mine:{function}", args=args, folder=str(folder))
    with pytest.raises(ConfigError, match=message):
        build_model(config, INPUTS, 10, {})


def test_a_users_model_is_built_with_its_arguments(folder):
    config = ModelConfig(build="model_of_mine:build", args={"width": 5}, folder=str(folder))
    assert build_model(config, INPUTS, 10, {}).count_params() == 64 * 5 + 5 + 5 * 10 + 10
