"""The study: what is searched is checked by name, and what is tried follows from the config and the trials before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.study import Study, Trial, check_space, open_study
from flows.sweep import carry_out
from tasks.config import build_config, load_config
from tasks.errors import ConfigError
from tasks.strict_yaml import read_tree

DIGITS = Path(__file__).parents[2] / "conf" / "digits.yaml"
SPACE = {
    "train.optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "model.args.width": {"low": 8, "high": 32, "step": 8},
    "feed.global_batch_size": {"choices": [64, 128]},
}


def study_of(folder: Path, **fields: Any) -> Study:
    config = build_config({**read_tree(DIGITS), "sweep": {"space": SPACE, **fields}}, folder=DIGITS.parent)
    return open_study(folder, config, check_space(config), data_digest="d", code_digest="c")


def go_through(study: Study, loss: Callable[[int], float]) -> list[Trial]:
    """Returns the trials of a study that is gone through without a training."""
    while (trial := study.next()) is not None:
        figures = {epoch: loss(trial.number) / epoch for epoch in (1, 2)}
        study.write(trial.model_copy(update={"status": "completed", "figures": figures, "best": figures[2]}))
    return study.trials()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"train.learning_rate": {"low": 1, "high": 2}},
            "sweep.space.train.learning_rate: does not take 1: train.learning",
        ),
        (
            {"feed.block": {"low": 0, "high": 9}},
            "sweep.space.feed.block: does not take 0: feed.block=0: must be greater",
        ),
        ({"train.precision": {"choices": ["float32", "int8"]}}, "sweep.space.train.precision: does not take 'int8': "),
        ({"train.seed": {"low": 5, "high": 5}}, "must have a low below its high"),
        ({"train.seed": {}}, "must have either low and high, or choices"),
        ({"train.seed": {"high": 5, "choices": [1]}}, "must have either low and high, or choices"),
        ({"feed.block": {"low": 0, "high": 9, "log": True}}, "must have a low above 0 and no step"),
        ({"feed.block": {"low": 1, "high": 9, "step": 0.5}}, "must have a whole step"),
        ({"train.best_metric": {"choices": ["val_loss"]}}, "trials are compared by it"),
        ({"data.seed": {"low": 0, "high": 9}}, "sweep.space.data.seed"),
        ({}, "sweep.space={}"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_by_name(space: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_space(build_config({**read_tree(DIGITS), "sweep": {"space": space}}))
    assert message in str(raised.value)


def test_a_config_without_a_space_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match="sweep: is required but missing"):
        check_space(load_config(DIGITS))


def test_the_same_trials_come_of_the_same_seed_and_others_of_another(tmp_path: Path) -> None:
    once, again, other = (
        go_through(study_of(tmp_path / name, num_trials=12, seed=seed), lambda number: 1 / (number + 1))
        for name, seed in (("once", 3), ("again", 3), ("other", 4))
    )
    assert once == again
    assert [trial.values for trial in once] != [trial.values for trial in other]
    assert {trial.values["model.args.width"] for trial in once} <= {8, 16, 24, 32}
    assert {trial.values["feed.global_batch_size"] for trial in once} == {64, 128}
    assert len({trial.values["train.optimizer.learning_rate"] for trial in once}) == 12


def test_an_interrupted_trial_comes_first_and_more_trials_go_on(tmp_path: Path) -> None:
    study = study_of(tmp_path, num_trials=3)
    first = study.next()
    assert study.next() == first  # it is not over
    assert len(go_through(study, float)) == 3
    assert study.next() is None
    more = study_of(tmp_path, num_trials=5)
    assert more.directory == study.directory
    assert len(go_through(more, float)) == 5


def test_best_config_is_the_file_with_the_best_values_laid_over_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, num_trials=4)
    trials = go_through(study, lambda number: [3.0, 1.0, 2.0, 1.0][number])
    best = study.best()
    assert best == trials[1]  # of equals the first
    values = [f"{name}={value}" for name, value in best.values.items()]
    assert load_config(study.best_config) == load_config(DIGITS, values)


def test_a_trial_is_given_up_if_it_is_worse_than_half_of_those_before_it(tmp_path: Path) -> None:
    study = study_of(tmp_path, num_trials=4, pruning={"first_trials": 3, "first_epochs": 2})
    go_through(
        study_of(tmp_path, num_trials=3, pruning={"first_trials": 3, "first_epochs": 2}), lambda number: 2.0 + number
    )
    trial = study.next()
    assert trial is not None
    seen = {
        figures: study.is_hopeless(trial.model_copy(update={"figures": dict(figures)}))
        for figures in (
            ((1, 9.0),),  # an epoch that each is given
            ((1, 9.0), (2, 1.49)),
            ((1, 9.0), (2, 1.51)),  # the others came to 1, 1.5 and 2
        )
    }
    assert list(seen.values()) == [False, False, True]


def test_no_trial_is_given_up_before_some_came_to_their_end(tmp_path: Path) -> None:
    study = study_of(tmp_path, pruning={"first_trials": 2})
    go_through(study_of(tmp_path, num_trials=1, pruning={"first_trials": 2}), float)
    trial = study.next()
    assert trial is not None
    assert not study.is_hopeless(trial.model_copy(update={"figures": {1: 99.0}}))


def test_a_trial_whose_settings_do_not_go_together_fails_and_the_next_one_follows(tmp_path: Path) -> None:
    space = {"train.loss": {"choices": ["auto", "mine:loss"]}, "train.label_smoothing": {"choices": [0.0, 0.1]}}
    study = study_of(tmp_path, space=space, num_trials=2)
    first = study.next()
    assert first is not None
    wrong = first.model_copy(update={"values": {"train.loss": "mine:loss", "train.label_smoothing": 0.1}})
    done = carry_out.fn(study, wrong, tmp_path, None, None)  # it needs no shards to be refused
    assert (done.status, done.reason.partition(":")[0]) == ("failed", "train.label_smoothing=0.1")
    assert study.trials() == [done]
    following = study.next()
    assert following is not None
    assert following.number == 1
    assert study.best() is None
