"""The sweep command: a search for better settings, and what came of each trial."""

from pathlib import Path
from typing import TYPE_CHECKING

from flows import display, embedded
from flows.options import Json, Overrides
from tasks.config import Config, load_config

if TYPE_CHECKING:
    from flows.sweep import Swept


def sweep(config: Path, *overrides: Overrides, json: Json = False) -> None:
    """A search for better settings: many trainings, the best of them as best.yaml; goes on where it was interrupted.

    Example: millstream sweep conf/digits.yaml 'sweep.space={model.args.width: {choices: [16, 32]}}' sweep.num_trials=4

    Parameters
    ----------
    config
        A file such as conf/digits.yaml, with a group `sweep`.
    """
    from flows.study import check_space
    from tasks.workers import launch

    resolved = load_config(config, overrides)
    check_space(resolved)
    launch.warm_up()
    embedded.start()
    from flows.sweep import sweep

    groups = {name: getattr(resolved, name) for name in Config.model_fields if name != "deploy"}
    found = sweep(**groups)
    if json:
        display.record(found, json=True)
        return
    _show(found)


def _show(found: "Swept") -> None:
    names = list(found.best.values)
    rows = [
        (
            f"{trial.number}{' (best)' if trial.number == found.best.number else ''}",
            *(str(trial.values[name]) for name in names),
            f"{trial.best:.6g}" if trial.best is not None else "-",
            str(len(trial.figures)),
            trial.status,
        )
        for trial in found.trials
    ]
    display.table(("trial", *names, found.metric, "epochs", "status"), rows)
    display.note(f"the best: millstream run {found.best_config}")
    display.note(f"MLflow run {found.tracking_url}")


COMMANDS = (sweep,)
