"""The fields that say how weights are updated: what they take and refuse, before any work."""

import pytest

from tasks.config import build_config
from tasks.errors import ConfigError
from tasks.optimization import OPTIMIZERS, OptimizerConfig


def refusal(*overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        build_config({"name": "digits"}, overrides)
    return str(refused.value)


@pytest.mark.parametrize("given", ["rmsprop", "RMSprop", "schedule_free_adamw", "ScheduleFreeAdamW", "AdamW", "SGD"])
def test_an_optimizer_is_named_as_here_or_as_in_keras(given: str) -> None:
    name = build_config({"name": "digits"}, [f"train.optimizer.name={given}"]).train.optimizer.name
    assert given in (name, OPTIMIZERS[name][0])


def test_every_known_optimizer_can_be_named() -> None:
    assert {OptimizerConfig.model_validate({"name": name}).name for name in OPTIMIZERS} == OPTIMIZERS.keys()


def test_an_unknown_optimizer_is_refused_with_those_there_are() -> None:
    assert refusal("train.optimizer.name=adm").startswith(
        "train.optimizer.name='adm': must be one of sgd, adam, adamw, lion, adadelta, adafactor, adagrad, adamax, "
        "ftrl, lamb, muon, nadam, rmsprop, schedule_free_adamw (Which of"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            "{momentm: 0.9}",
            "={'momentm': 0.9}: must be arguments of sgd, which has momentum, nesterov, weight_decay; did you mean "
            "momentum? (Further",
        ),
        ("{momentum: high}", "={'momentum': 'high'}: must be arguments of sgd, whose momentum is a number (Further"),
        ("{nesterov: 1}", "={'nesterov': 1}: must be arguments of sgd, whose nesterov is true or false (Further"),
        (
            "{clipnorm: 1.0}",
            "={'clipnorm': 1.0}: must be arguments of sgd, which has momentum, nesterov, weight_decay; use "
            "train.clip, which clips after the sum over the replicas (Further",
        ),
    ],
)
def test_an_argument_that_the_optimizer_has_not_is_refused(args: str, message: str) -> None:
    said = refusal("train.optimizer.name=sgd", f"train.optimizer.args={args}")
    assert said.startswith(f"train.optimizer.args{message}")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{kind: step}", "train.optimizer.schedule.boundaries: is required but missing"),
        (
            "{kind: step, boundaries: [3 epochs, 6 epochs], factors: [0.1]}",
            "train.optimizer.schedule.factors=[0.1]: must be one for each of the 2 boundaries (One",
        ),
        ("{kind: exponential, factor: 0.9}", "train.optimizer.schedule.every: is required but missing"),
        (
            "{kind: steps}",
            "train.optimizer.schedule.kind='steps': must be one of constant, cosine, step, polynomial, exponential; "
            "did you mean step?",
        ),
        ("{kind: cosine, power: 2}", "train.optimizer.schedule.power=2: no such field; "),
    ],
)
def test_a_schedule_that_is_none_is_refused(schedule: str, message: str) -> None:
    assert refusal(f"train.optimizer.schedule={schedule}").startswith(message)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("balancd", "train.class_weights='balancd': must be balanced (By"),
        ("{a: -1, b: 1}", "train.class_weights.a=-1: must be greater than or equal to 0"),
        ("{a: .inf}", "train.class_weights.a=inf: must be a finite number"),
        ("{0: 2}", "train.class_weights.0=0: must be text"),
    ],
)
def test_class_weights_that_are_none_are_refused(weights: str, message: str) -> None:
    assert refusal(f"train.class_weights={weights}").startswith(message)


def test_weights_are_excluded_only_from_a_weight_decay_that_is_there() -> None:
    exclude = "train.optimizer.exclude_from_weight_decay=[bias]"
    for name, args in (("adamw", "{}"), ("muon", "{weight_decay: 0}"), ("sgd", "{weight_decay: 0.01}")):
        build_config({"name": "digits"}, [f"train.optimizer={{name: {name}, args: {args}}}", exclude])
    for name, args in (("adamw", "{weight_decay: 0}"), ("sgd", "{}")):
        said = refusal(f"train.optimizer={{name: {name}, args: {args}}}", exclude)
        assert "must be empty where there is no weight decay; add args={weight_decay: 0.01}" in said
    assert "'bi(as' is none" in refusal("train.optimizer.exclude_from_weight_decay=['bi(as']")
