"""Overrides: single fields of a config, by dotted key."""

from typing import Any

from tasks.errors import ConfigError
from tasks.strict_yaml import parse_yaml


def lay_over(tree: dict[str, Any], override: str) -> dict[str, Any]:
    """Returns a config's tree with an override such as 'train.total=3 epochs' laid over it; raises ConfigError.

    Another `kind` takes the fields of the old one with it.
    """
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"override {override!r}: must be key=value with a dotted key, such as train.total='3 epochs'")
    value = parse_yaml(text, f"override {override!r}")
    return replace(tree, path.split("."), value, f"override {override!r}")


def replace(tree: dict[str, Any], path: list[str], value: Any, where: str) -> dict[str, Any]:
    """Returns a tree with another value at a path; raises ConfigError, led in by `where`, if it cannot be there."""
    head, *rest = path
    if not rest:
        return tree | {head: value}
    below = {} if tree.get(head) is None else tree[head]
    if not isinstance(below, dict):
        raise ConfigError(f"{where}: {head} is {below!r}, which has no fields")
    if rest == ["kind"] and below.get("kind") not in (None, value):
        below = {}  # the fields of the old kind mean nothing to the new one
    return tree | {head: replace(below, rest, value, where)}
