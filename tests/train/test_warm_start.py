"""What a training begins with, and what of it stays."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tasks.errors import ConfigError, DataError
from tasks.promote.warm_start import settle_warm_start
from tasks.runs import run_key
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train

QUICK = (
    "feed.global_batch_size=500",
    "train.optimizer.schedule.kind=constant",
    "model.args={width: 4, largest_value: 16}",
    "distribute.num_replicas=2",
)


@pytest.mark.prove
def test_frozen_layers_stay_as_they_were_statistics_included(trainer):
    frozen = (*QUICK, "model.freeze=[^conv2d$, ^sync_batch_norm$]")
    one, two = (trainer.weights(*frozen, f"train.total={steps} steps") for steps in (1, 3))
    same = {name.split()[1] for name in one if np.array_equal(one[name], two[name])}
    kept = {
        "conv2d/kernel",
        *(f"sync_batch_norm/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")),
    }
    assert kept <= same
    assert not {"conv2d_1/kernel", "sync_batch_norm_1/moving_mean", "dense/kernel"} & same
    assert not [name for name in one if "momentum" in name and "conv2d_kernel" in name], "no state is kept of them"


@pytest.fixture(scope="module")
def first(trainer):
    """A finished run of three steps, whose averages are what is evaluated."""
    run = trainer.run(*QUICK, "train.total=3 steps", "train.ema={momentum: 0.5, evaluate: true}")
    train(run, trainer.digits.shards)
    return run


def settled(trainer, run, *overrides):
    return settle_warm_start(
        trainer.run(*QUICK, f"model.warm_start={{kind: run, run: {run.id}}}", *overrides).config,
        trainer.digits.workspace,
    )


def begun(trainer, start, *overrides):
    """Returns the weights after a step that changes nothing but for the statistics, and what the training said."""
    tree = json.dumps(start.model_dump(mode="json"))
    still = ("train.optimizer.name=sgd", "train.optimizer.args={}", "train.optimizer.learning_rate=1.0e-30")
    run = trainer.run(*QUICK, *still, "train.total=1 steps", f"model.warm_start={tree}", *overrides)
    notes = []
    result = trainer.call("tasks.train.loop:train", run, on_progress=notes.append)
    said = [note["line"] for note in notes if note["phase"] == "note"]
    return by_path(load_file(Path(result["last_checkpoint"]) / VARIABLES)), said[0]


def by_path(arrays):
    return {name.split()[1]: value for name, value in arrays.items()}


def test_a_run_gives_the_weights_that_it_was_judged_by(trainer, first):
    start = settled(trainer, first).model.warm_start
    found, said = begun(trainer, start)
    held = by_path(load_file(start.file))
    for name in ("conv2d/kernel", "dense/bias", "sync_batch_norm/gamma"):
        np.testing.assert_array_equal(found[name], held[f"ema_{name.replace('/', '_')}"])
        assert not np.array_equal(found[name], held[name])
    assert said.startswith(f"warm start: 14 of 14 weights from run {first.id}, step 3; of the file, not used: ")


@pytest.mark.prove
def test_a_new_head_is_drawn_anew_and_it_is_said(trainer, first):
    start = settled(trainer, first).model.warm_start.model_copy(update={"exclude": ("^dense_1/",), "averages": False})
    found, said = begun(trainer, start)
    held = by_path(load_file(start.file))
    np.testing.assert_array_equal(found["conv2d/kernel"], held["conv2d/kernel"])
    assert not np.array_equal(found["dense_1/kernel"], held["dense_1/kernel"])
    assert "12 of 14 weights" in said
    assert "; drawn anew: dense_1/kernel, dense_1/bias;" in said


@pytest.mark.prove
def test_another_shape_type_or_digest_is_refused_by_name(trainer, first, tmp_path):
    start = settled(trainer, first).model.warm_start
    for overrides, message in (
        (
            ["model.args={width: 5, largest_value: 16}"],
            r"has conv2d/kernel as \(3, 3, 1, 4\) float32, and the model as \(",
        ),
        (["train.precision=float64"], r"has conv2d/kernel as \(3, 3, 1, 4\) float32, and the model as .* float64"),
        (["model.build=models_for_tests:normalised", "model.args={}"], "has dense/kernel as"),
        (
            ["model.build=stock_models:image", "model.args={}"],
            r"has no batch_normalization/beta, .*exclude=\[\^batch_norm",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            begun(trainer, start, *overrides)
    with pytest.raises(ConfigError, match=r"warm_start.exclude: 'head' is found in none of conv2d/kernel"):
        begun(trainer, start.model_copy(update={"exclude": ("head",)}))
    with pytest.raises(DataError, match=r"has the sha256 .*, and model.warm_start wants 000"):
        begun(trainer, start.model_copy(update={"sha256": "0" * 64}))
    with pytest.raises(DataError, match=r"is not there, and model.warm_start names it"):
        begun(trainer, start.model_copy(update={"file": str(tmp_path / "gone.safetensors")}))


def test_the_digest_is_part_of_the_key_and_the_place_is_not(trainer, first):
    config = settled(trainer, first)
    start = config.model.warm_start

    def key(**changes):
        model = config.model.model_copy(update={"warm_start": start.model_copy(update=changes)})
        return run_key(config.model_copy(update={"model": model}), data_digest="d", code_digest="c")

    assert key() == key(file="/elsewhere.safetensors", origin=None)
    assert len({key(), key(sha256="0" * 64), key(exclude=("x",)), key(averages=False)}) == 4
    assert settle_warm_start(config, trainer.digits.workspace) == config, "a run keeps what it was begun with"


def test_what_cannot_be_settled_is_refused_before_anything_starts(trainer):
    for start, message in (
        ("{kind: run, run: digits-1}", "run digits-1 gives no weights: no run 'digits-1'"),
        (f"{{kind: run, run: {trainer.run(*QUICK).id}}}", "gives no weights: run .* was not trained to its end"),
        ("{kind: alias, alias: digits@champion}", "alias=digits@champion: the registry at sqlite:.* has none"),
        (
            "{kind: file, file: weights.h5, sha256: " + "0" * 64 + "}",
            r"must end in .safetensors: .h5, .keras, .pt and pickl",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            settle_warm_start(trainer.run(f"model.warm_start={start}").config, trainer.digits.workspace)
