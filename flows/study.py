"""Study: the trials of a sweep as they stand on disk; Optuna says by them which is next, and which is given up.

What is tried is a function of the config and of the trials before: nothing of Optuna's own is kept.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml

from tasks.config import Config, build_config
from tasks.errors import ConfigError
from tasks.files import Record, digest_json, write_atomic
from tasks.overrides import replace
from tasks.sweep import Axis, Choice, SweepConfig
from tasks.target import is_lower_better

if TYPE_CHECKING:
    import optuna

BEST = "best.yaml"

_OPERATIONAL = {"num_trials"}  # a sweep that is given more trials goes on


class Trial(Record):
    """One training of a sweep."""

    number: int
    """From 0."""
    values: dict[str, Choice]
    """Of the fields that are searched."""
    status: Literal["running", "completed", "pruned", "failed"] = "running"
    """`running` of a sweep that is not: it was interrupted, and goes on with this trial."""
    run_id: str = ""
    figures: dict[int, float] = {}
    """{epoch: train.best_metric}, where it was finite."""
    best: float | None = None
    """The best of them, if it came to its end."""
    reason: str = ""
    """Why it failed or was given up."""


@dataclass(frozen=True)
class Study:
    """A sweep's directory sweeps/<id>/ in the workspace, and the config whose fields are searched."""

    directory: Path
    config: Config
    search: SweepConfig

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def metric(self) -> str:
        """The validation figure by which trials are compared."""
        return self.config.train.best_metric

    @property
    def best_config(self) -> Path:
        """The config of the best trial so far, which `millstream run` takes as it is."""
        return self.directory / BEST

    def trials(self) -> list[Trial]:
        """Returns what was tried so far, in order."""
        return sorted(map(Trial.read, self._trials.glob("*.json")), key=lambda trial: trial.number)

    def next(self) -> Trial | None:
        """Returns the trial to carry out now, an interrupted one first; None: all are done."""
        trials = self.trials()
        for trial in trials:
            if trial.status == "running":
                return trial
        if len(trials) >= self.search.num_trials:
            return None
        space = {name: _distribution(axis) for name, axis in self.search.space.items()}
        trial = Trial(number=len(trials), values=self._replayed(trials).ask(space).params)
        self.write(trial)
        return trial

    def write(self, trial: Trial) -> None:
        """Writes how a trial stands, and the config of the best one."""
        trial.write(self._trials / f"{trial.number:04}.json")
        best = self.best()
        if best is not None and best.number == trial.number:
            tree = trial_config(self.config, best.values).model_dump(mode="json", exclude={"sweep"})
            text = f"# Trial {best.number} of sweep {self.id}: {self.metric} {best.best:.6g}.\n"
            write_atomic(self.best_config, (text + yaml.safe_dump(tree, sort_keys=False)).encode())

    def best(self) -> Trial | None:
        """Returns the best of the trials that came to their end, of equals the first; None: there is none yet."""
        sign = 1 if is_lower_better(self.metric) else -1
        ended = {trial.best: trial for trial in reversed(self.trials()) if trial.best is not None}
        return ended[min(ended, key=lambda best: sign * best)] if ended else None

    def is_hopeless(self, trial: Trial) -> bool:
        """Returns whether a running trial is to be given up, by its figures up to its last epoch."""
        study = self._replayed([each for each in self.trials() if each.number != trial.number])
        return study.pruner.prune(study, self._frozen(trial))

    @property
    def _trials(self) -> Path:
        return self.directory / "trials"

    def _replayed(self, trials: list[Trial]) -> "optuna.Study":
        """Returns an Optuna study in memory that holds these trials, and asks for the one after them."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        pruning, seed = self.search.pruning, np.random.SeedSequence([self.search.seed, len(trials)])
        study = optuna.create_study(
            direction="minimize" if is_lower_better(self.metric) else "maximize",
            sampler=optuna.samplers.TPESampler(seed=int(seed.generate_state(1)[0])),
            pruner=optuna.pruners.NopPruner()
            if pruning is None
            else optuna.pruners.PercentilePruner(
                pruning.percentile,
                n_startup_trials=pruning.first_trials,
                n_warmup_steps=pruning.first_epochs,
            ),
        )
        study.add_trials([self._frozen(trial) for trial in trials])
        return study

    def _frozen(self, trial: Trial) -> "optuna.trial.FrozenTrial":
        import optuna

        states = optuna.trial.TrialState
        state = {"completed": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}.get(trial.status)
        return optuna.trial.create_trial(
            state=state or states.RUNNING,
            value=trial.best,
            params=trial.values,
            distributions={name: _distribution(axis) for name, axis in self.search.space.items()},
            intermediate_values=trial.figures,
        )


def open_study(workspace: Path, config: Config, search: SweepConfig, *, data_digest: str, code_digest: str) -> Study:
    """Returns the sweep of a config, data and model code; it goes on where the last one of the same stopped."""
    key = digest_json(
        {
            "config": config.identity(),
            "sweep": search.model_dump(mode="json", exclude=_OPERATIONAL),
            "data": data_digest,
            "code": code_digest,
        }
    )[:12]
    study = Study(workspace / "sweeps" / f"{config.name}-{key}", config, search)
    (study.directory / "trials").mkdir(parents=True, exist_ok=True)
    return study


def trial_config(config: Config, values: Mapping[str, Choice]) -> Config:
    """Returns the config of a trial: values laid over the fields that are searched; raises ConfigError."""
    tree: dict[str, Any] = config.model_dump(mode="json", exclude={"sweep"})
    for name, value in values.items():
        tree = replace(tree, name.split("."), value, f"sweep.space.{name}")
    return build_config(tree)


def check_space(config: Config) -> SweepConfig:
    """Returns what is searched; raises ConfigError if nothing is, or a field is unknown or does not take its values.

    Every choice and both ends of a range are tried, one field at a time. What is not allowed of several together is
    found by the trial, which fails.
    """
    if config.sweep is None:
        raise ConfigError(
            "sweep: is required but missing; say what to search, such as\n"
            "sweep: {space: {train.optimizer.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}}}"
        )
    if find_spec("optuna") is None:
        raise ConfigError("sweep: needs optuna, not installed here; pip install 'millstream[sweep]'")
    for name, axis in config.sweep.space.items():
        if re.fullmatch(r"train\.(best_metric|early_stopping\.metric)", name):
            raise ConfigError(f"sweep.space.{name}: trials are compared by it, so that it must be one; leave it out")
        for value in axis.ends:
            try:
                trial_config(config, {name: value})
            except ConfigError as error:
                raise ConfigError(f"sweep.space.{name}: does not take {value!r}: {error}") from None
    return config.sweep


def _distribution(axis: Axis) -> "optuna.distributions.BaseDistribution":
    from optuna import distributions

    if axis.choices:
        return distributions.CategoricalDistribution(axis.choices)
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return distributions.IntDistribution(axis.low, axis.high, log=axis.log, step=int(axis.step or 1))
    return distributions.FloatDistribution(axis.low, axis.high, log=axis.log, step=axis.step)
