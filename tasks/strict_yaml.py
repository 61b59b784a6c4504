"""Strict YAML: safe, and a key given twice is refused."""

from pathlib import Path
from typing import Any

import yaml

from tasks.errors import ConfigError


def read_tree(path: str | Path) -> dict[str, Any]:
    """Returns what a YAML file says, unchecked; raises ConfigError if it cannot be read or is no mapping."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); give the path of a config such as conf/digits.yaml"
        ) from error
    tree = parse_yaml(text, str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: holds {type(tree).__name__}, not a mapping; begin with 'name: ...'")
    return tree


def parse_yaml(text: str, where: str) -> Any:
    """Returns what a text says; raises ConfigError with place and line, `where` it is from."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ConfigError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:  # a character that no YAML may hold
        raise ConfigError(f"{where}: not valid YAML: {error}") from None


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice, which plain YAML resolves silently."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise yaml.MarkedYAMLError(
                problem=f"{key!r} is given twice; keep one", problem_mark=node.value[index][0].start_mark
            )
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
