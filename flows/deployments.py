"""prefect.yaml, made from conf/: every config is a deployment, one more for each of its schedules, one of its
retraining and of its sweep."""

import difflib
from pathlib import Path
from typing import Any

import yaml

from flows.arrival import trigger
from tasks.config import Config, load_config
from tasks.deployment import Schedule
from tasks.errors import ConfigError
from tasks.section import Section
from tasks.sources import ArraySource, TfdsSource
from tasks.strict_yaml import read_tree

HEADER = "# Made from conf/*.yaml by `millstream deployments --write`; change it there.\n"
COLLISION_STRATEGIES = {"wait": "ENQUEUE", "cancel": "CANCEL_NEW"}


def render(conf: Path) -> str:
    """Returns the text of prefect.yaml for the configs in `conf`; raises ConfigError if one of them is wrong."""
    deployments = []
    for path in sorted(conf.glob("*.yaml")):
        config = load_config(path)
        # What the file says, not the defaults beside it, so that a default can change without a new deployment.
        parameters = {
            name: value
            for name, value in _with_kinds(read_tree(path), config).items()
            if name not in {"deploy", "sweep"}
        }
        parameters["model"] = _with_folder(parameters.get("model", {}), conf)
        if isinstance(config.data.source, TfdsSource | ArraySource):
            data = parameters["data"]
            parameters["data"] = {**data, "source": _with_folder(data["source"], conf)}
        for name, schedule in {"": None, **config.deploy.schedules}.items():
            deployments.append(_deployment(config, path, parameters, name, schedule))
        if config.deploy.retraining is not None:
            deployments.append(_retraining(config, path, parameters, config.deploy.retraining))
        if config.sweep is not None:
            deployments.append(_sweep(config, path, {**parameters, "sweep": read_tree(path)["sweep"]}))
    tree = {
        "name": "millstream",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": deployments,
    }
    return HEADER + yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=120)


def check(conf: Path, file: Path) -> None:
    """Raises ConfigError with the lines that differ if `file` is not what `render` makes of `conf`."""
    found = file.read_text() if file.is_file() else ""
    expected = render(conf)
    if found != expected:
        lines = difflib.unified_diff(
            found.splitlines(), expected.splitlines(), str(file), "from conf/", lineterm="", n=1
        )
        raise ConfigError(f"{file}: is not what conf/ says; run `millstream deployments --write`\n" + "\n".join(lines))


def _with_kinds(tree: dict[str, Any], section: Section) -> dict[str, Any]:
    """Returns what the file says with every `kind` that it leaves to the default.

    Prefect's server takes a group without one for ambiguous, because it would be valid as each of several.
    """
    groups = {name: group for name in tree if isinstance(group := getattr(section, name, None), Section)}
    tree = {name: _with_kinds(value, groups[name]) if name in groups else value for name, value in tree.items()}
    kind = getattr(section, "kind", None)
    return tree if kind is None else {"kind": kind, **tree}


def _with_folder(group: dict[str, Any], conf: Path) -> dict[str, Any]:
    """Returns a group with the folder of its code: the config's own, unless it names one."""
    return {**group, "folder": group.get("folder") or conf.name}


def _deployment(
    config: Config, path: Path, parameters: dict[str, Any], name: str, schedule: Schedule | None
) -> dict[str, Any]:
    schedules = []
    if schedule is not None:
        schedules = [{"cron": schedule.cron, "timezone": schedule.timezone, "active": schedule.active}]
    return {
        "name": f"{config.name}-{name}" if name else config.name,
        "description": f"conf/{path.name}, from raw data to a registered model",
        "entrypoint": "flows/training.py:training",
        "work_pool": {"name": config.deploy.work_pool},
        "concurrency_limit": {
            "limit": config.deploy.concurrency_limit,
            "collision_strategy": COLLISION_STRATEGIES[config.deploy.when_busy],
        },
        "parameters": parameters,
        "schedules": schedules,
    }


def _retraining(config: Config, path: Path, parameters: dict[str, Any], schedule: Schedule) -> dict[str, Any]:
    return {
        **_deployment(config, path, parameters, "retraining", schedule),
        "description": f"conf/{path.name}: new data to a model that is served if the gate accepts it",
        "entrypoint": "flows/retraining.py:retraining",
        # Two that wait for each other would be judged by one champion, and come to nothing new.
        "concurrency_limit": {"limit": 1, "collision_strategy": COLLISION_STRATEGIES["cancel"]},
        "triggers": [trigger(config.name)],
    }


def _sweep(config: Config, path: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        **_deployment(config, path, parameters, "sweep", None),
        "description": f"conf/{path.name}: many trainings under other settings, the best as best.yaml",
        "entrypoint": "flows/sweep.py:sweep",
    }


class _Dumper(yaml.SafeDumper):
    """Writes what two deployments share twice: prefect.yaml is read by people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
