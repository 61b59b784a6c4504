"""Params: the config as MLflow shows it, one dotted name a field."""

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_NAME_LENGTH = 250  # MLflow refuses longer names
MAX_VALUE_LENGTH = 6000  # and cuts longer values without a sign


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns {dotted name: text} of a JSON tree: text as it is, all else as JSON; longer texts end with '...'."""
    found: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            name = re.sub(r"[^\w.\- :]", "_", prefix + key)[:MAX_NAME_LENGTH]
            found[name] = _cut(value if isinstance(value, str) else json.dumps(value))
    return found


def compare(params: Mapping[str, str], logged: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns (params that are new, tags `changed.<name>` of those that differ): MLflow refuses to change a param."""
    new = {name: value for name, value in params.items() if name not in logged}
    changed = {
        f"changed.{name}"[:MAX_NAME_LENGTH]: value
        for name, value in params.items()
        if name in logged and logged[name] != value
    }
    return new, changed


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."
