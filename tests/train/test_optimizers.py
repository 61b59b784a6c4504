"""Keras's optimizers, by name, on any number of replicas."""

from pathlib import Path

import pytest

from tasks.errors import ConfigError
from tasks.optimization import FLAG, NUMBER, OPTIMIZERS, decays

# Of every optimizer in Keras. They have a field of their own here, or are wrong on several replicas.
TAKEN = {
    "learning_rate",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "loss_scale_factor",
    "gradient_accumulation_steps",
    "name",
}


@pytest.fixture
def call(workers, tmp_path):
    def call(function, **arguments):
        folder = str(Path(__file__).parent)
        return workers.call(f"optimizer_functions:{function}", arguments, log=tmp_path / "log", import_path=[folder])

    return call


def test_the_optimizers_and_their_arguments_are_those_of_keras(call):
    found = call("keras_arguments")
    assert {name for name, _ in OPTIMIZERS.values()} == found.keys() - {"Optimizer"}
    for ours, (name, arguments) in OPTIMIZERS.items():
        assert decays(ours, {}) == any(found[name].get(decay) for decay in ("weight_decay", "adam_weight_decay"))
        assert arguments.keys() == found[name].keys() - TAKEN, name
        for argument, kind in arguments.items():
            default = found[name][argument]
            if default is not None:
                assert kind == (FLAG if isinstance(default, bool) else NUMBER), f"{name}.{argument}"


def test_every_optimizer_does_the_same_on_two_replicas_as_on_one(call):
    assert {name: value for name, value in call("differences_on_two_replicas").items() if value > 1e-12} == {}


@pytest.mark.parametrize(
    ("patterns", "spared"),
    [
        ([], set()),
        (["bias"], {"dense/bias"}),
        (["^dense/", "nel$"], {"dense/kernel", "dense/bias", "conv/kernel"}),
    ],
)
def test_weight_decay_spares_the_weights_whose_path_fits_a_pattern(call, patterns, spared):
    left = call("decayed", name="sgd", args={"weight_decay": 0.0625}, patterns=patterns)
    assert left == {path: pytest.approx(1 if path in spared else 1 - 0.1 * 0.0625, abs=1e-15) for path in left}
    assert left.keys() == {"dense/kernel", "dense/bias", "conv/kernel"}


def test_a_pattern_that_fits_no_weight_is_refused_with_those_there_are(call):
    with pytest.raises(ConfigError) as refused:
        call("decayed", name="adamw", args={}, patterns=["bias", "gama"])
    assert str(refused.value) == (
        "train.optimizer.exclude_from_weight_decay: 'gama' is found in the path of no weight; the model's weights are "
        "dense/kernel, dense/bias, conv/kernel"
    )


def test_a_value_that_keras_refuses_is_named(call):
    with pytest.raises(
        ConfigError, match=r"train.optimizer.args=\{'momentum': 2\}: Keras's sgd refuses them: .*\[0, 1"
    ):
        call("decayed", name="sgd", args={"momentum": 2}, patterns=[])
