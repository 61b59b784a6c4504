"""The commands that say which version of a model is served, and the one that trains the next."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows import display, embedded
from flows.options import Json, Overrides
from tasks.config import Config, load_config
from tasks.promote.record import Promotion
from tasks.runs import workspace_of

GATE_NOT_MET = 3
Reason = Annotated[str, Parameter(help="Why; it is kept with who and when.")]


def retrain(config: Path, /, *overrides: Overrides, force: bool = False, json: Json = False) -> None:
    """New data: trains, evaluates and exports, and promotes what the gate accepts; else nothing. Rejected: exit code 3.

    Example: millstream retrain conf/digits.yaml promote.gate.margin=0.01

    Parameters
    ----------
    config
        A file such as conf/digits.yaml.
    force
        Train though the data are the same.
    """
    resolved = load_config(config, overrides)
    embedded.start()
    from flows.retraining import retraining

    groups = {name: getattr(resolved, name) for name in Config.model_fields if name not in {"deploy", "sweep"}}
    found = retraining(**groups, force=force)
    if json:
        display.print_json(found.model_dump(mode="json"))
    else:
        if found.outcome is not None:
            display.outcome(found.outcome, json=False)
        display.note(found.line)
    if found.is_rejected:
        sys.exit(GATE_NOT_MET)


def promote(name: str, /, *, reason: Reason = "by hand", json: Json = False) -> None:
    """Makes a version of a registered model the champion, which is served.

    Example: millstream promote digits/3 --reason "better on the new scanner"

    Parameters
    ----------
    name
        NAME for its newest version, NAME@alias or NAME/version.
    """
    from tasks.promote.promotion import promote

    _show(promote(name, workspace_of(), reason=reason), json=json)


def rollback(name: str, /, *, reason: Reason = "by hand", json: Json = False) -> None:
    """Makes the champion before the last one the champion again.

    Example: millstream rollback digits --reason "wrong answers since noon"

    Parameters
    ----------
    name
        Name of the registered model.
    """
    from tasks.promote.promotion import rollback

    _show(rollback(name, workspace_of(), reason=reason), json=json)


def models(name: str, /, *, json: Json = False) -> None:
    """Every version of a registered model: figures, data, commit, aliases, age.

    Example: millstream models digits

    Parameters
    ----------
    name
        Name of the registered model.
    """
    from tasks.promote.models import list_models

    found = list_models(name, workspace_of())
    if json:
        display.print_json([each.model_dump(mode="json") for each in found])
        return
    now = datetime.now(UTC)
    rows = [
        [
            str(each.version),
            ", ".join(each.aliases) or "-",
            ", ".join(f"{figure} {value:.4f}" for figure, value in each.figures.items()) or "-",
            (each.data_digest or "-")[:12],
            (each.commit or "-")[:12],
            _age(now - datetime.fromisoformat(each.registered_at)),
            each.run_id or "-",
            each.serving or "-",
        ]
        for each in found
    ]
    display.table(("version", "aliases", "figures", "data", "commit", "age", "run", "served"), rows)


def _show(change: Promotion, *, json: bool) -> None:
    if json:
        display.print_json(change.model_dump(mode="json"))
        return
    before = f", before it version {change.replaced}" if change.replaced is not None else ""
    display.note(f"{change.name}: version {change.version} is the champion{before}; served as number {change.number}")


def _age(age: timedelta) -> str:
    return f"{age.days} days" if age.days else f"{age.seconds // 3600} hours"


COMMANDS = (retrain, promote, rollback, models)
