"""A small table with a target of every kind, and its shards."""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.config import Config, build_config
from tasks.download.download import download
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import prepare

NUM_ROWS = 230
TARGETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "binary": ("sign", {"positive": "minus"}),
    "multi_label": ("tags", {}),
    "flags": (["is_high", "is_wide"], {"kind": "multi_label"}),
    "regression": (["price", "size"], {}),
}
"""Of each kind what data.source.target and data.target are."""
COLUMNS = "a,b,sign,tags,is_high,is_wide,price,size"


def write_table(file: Path, num_rows: int = NUM_ROWS) -> None:
    """Writes a CSV in which all targets follow from the two inputs; prices are about 1e6, sizes about 1e-3."""
    rng = np.random.default_rng(0)
    lines = [COLUMNS]
    for a, b in rng.normal(size=(num_rows, 2)).round(3).tolist():
        tags = "|".join(name for name, there in (("low", a < 0), ("wide", b > 1), ("odd", a * b > 0)) if there)
        sign = "plus" if a + b > 0.5 else "minus"
        price, size = round(1e6 + 1000 * (a - b), 3), round(1e-3 + 1e-4 * a, 9)
        lines.append(f"{a},{b},{sign},{tags},{int(a > 0)},{str(b > 1).lower()},{price},{size}")
    file.write_text("\n".join(lines) + "\n")


def prepared(
    kind: str, workspace: Path, source_changes: dict[str, Any] | None = None, **changes: Any
) -> tuple[Config, Shards]:
    """Returns the config and the shards of one of TARGETS, in a workspace that has the table."""
    if not (workspace / "table.csv").exists():
        write_table(workspace / "table.csv")
    target, settings = TARGETS[kind]
    source = {"kind": "table", "path": str(workspace / "table.csv"), "target": target, "columns": ["a", "b"]}
    source |= source_changes or {}
    tree = {
        "name": kind,
        "data": {"source": source, "target": {"kind": kind} | settings, **changes},
        "feed": {"global_batch_size": 64, "block": 64},
        "model": {"build": "tasks.models.tabular:build", "args": {"width": 8, "depth": 1}},
        "train": {"optimizer": {"name": "sgd", "learning_rate": 0.5, "schedule": {"kind": "constant"}}},
    }
    config = build_config(tree)
    raw = download(config.data, workspace)
    return config, prepare(config.name, config.data, raw, workspace)
