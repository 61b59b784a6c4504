"""Fixtures for the tests of sources."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from tasks.config import DataConfig
from tasks.prepare.table.table import Table, open_table


@pytest.fixture
def opened(tmp_path: Path) -> "Opened":
    """open_table over files that are written first: `opened({"a.csv": ...}, splits={...}, target="y")`."""
    return Opened(tmp_path)


@dataclass(frozen=True)
class Opened:
    """Tables below a folder."""

    folder: Path

    def __call__(
        self, files: dict[str, str | bytes | pa.Table], splits: dict[str, Any] | None = None, **source: Any
    ) -> Table:
        """Returns the opened table in `files`: their contents by their names."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, pa.Table):
                _write(content, path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        source = {"kind": "table", "path": str(self.folder), "target": "y"} | source
        config = DataConfig.model_validate({"source": source} | ({"splits": splits} if splits else {}))
        return open_table(config, self.folder, list(files))

    @staticmethod
    def read(table: Table) -> dict[str, list[Any]]:
        """Returns all batches as one: rows, keys, labels (names), split_by, bad and the features."""
        batches = list(table.read())
        found: dict[str, list[Any]] = {
            "rows": [row for batch in batches for row in batch.rows.tolist()],
            "keys": [key for batch in batches for key in batch.keys],
            "labels": [table.schema.label_map[label] for batch in batches for label in batch.labels],
            "bad": [bad for batch in batches for bad in batch.bad],
            "split_by": [value for batch in batches if batch.split_by is not None for value in list(batch.split_by)],
        }
        for name, feature in table.schema.features.items():
            columns = [batch.columns[name] for batch in batches]
            for batch, column in zip(batches, columns, strict=True):
                if isinstance(column, np.ndarray):
                    assert (column.dtype, column.shape) == (feature.dtype, (len(batch.rows), *feature.shape))
            found[name] = [value for column in columns for value in _list(column)]
        return found

    def bad(self, table: Table) -> list[tuple[int | None, str | None, str]]:
        """Returns row, column and reason of all bad rows."""
        return [(bad.row, bad.column, bad.reason) for bad in self.read(table)["bad"]]


def _list(column: np.ndarray[Any, Any] | Sequence[bytes]) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


def _write(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".feather":
            feather.write_feather(table, path)
        case ".csv":
            pa_csv.write_csv(table, path)
        case ".jsonl":
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))
