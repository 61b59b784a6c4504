"""Predictions: what a model said of each example of a split, as Parquet."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.evaluate.judged import Judged

_NAMES = b"label_map"


class Predicted(NamedTuple):
    """What a file of predictions holds; one row an example, in storage order."""

    ids: NDArray[np.int64]
    """[n]."""
    targets: NDArray[Any]
    """[n, ...], as `tasks.prepare.targets` has them."""
    predictions: NDArray[np.float64]
    """[n, num_classes] probabilities, or [n, num_numbers] in their own unit."""
    losses: NDArray[np.float64]
    """[n]."""


def write_predictions(path: Path, judged: Judged, label_map: tuple[str, ...]) -> None:
    """Writes id, target, predicted, loss and, of classes, probabilities (a list in the order of the label map).

    Target and predicted are a class's name, a list of names, a number, or a list of numbers. The label map is in the
    metadata.
    """
    columns = {
        "id": pa.array(judged.ids),
        "target": _column(judged.targets, label_map),
        "predicted": _column(judged.decisions, label_map),
        "loss": pa.array(judged.losses),
    }
    if judged.targets.dtype.kind != "f":
        columns["probabilities"] = _numbers(judged.predictions)
    table = pa.table(columns, metadata={_NAMES: json.dumps(label_map)})
    pq.write_table(table, path, compression="zstd")


def read_predictions(path: Path) -> Predicted:
    """Returns what `write_predictions` wrote."""
    table = pq.read_table(path)
    label_map = json.loads(table.schema.metadata[_NAMES])
    targets, place_of = table["target"].to_pylist(), {name: place for place, name in enumerate(label_map)}
    if "probabilities" not in table.column_names:
        found, predictions = _rows(table["target"], len(label_map)), table["predicted"]
    else:
        predictions = table["probabilities"]
        if pa.types.is_list(table.schema.field("target").type):
            found = np.array([[name in names for name in label_map] for names in targets], np.uint8)
        else:
            found = np.array([place_of[name] for name in targets], np.int64)
    return Predicted(
        ids=table["id"].to_numpy(),
        targets=found,
        predictions=_rows(predictions, len(label_map)),
        losses=table["loss"].to_numpy(),
    )


def _column(targets: NDArray[Any], label_map: tuple[str, ...]) -> pa.Array:
    match targets.dtype.kind:
        case "f":
            numbers = targets.astype(np.float64)
            return _numbers(numbers) if len(label_map) > 1 else pa.array(numbers[:, 0])
        case "u":
            names = np.array(label_map, object)
            return pa.array([names[row == 1].tolist() for row in targets], pa.list_(pa.string()))
        case _:
            return pa.DictionaryArray.from_arrays(pa.array(targets, pa.int32()), list(label_map))


def _numbers(rows: NDArray[np.float64]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def _rows(column: pa.ChunkedArray, width: int) -> NDArray[np.float64]:
    values = column.combine_chunks()
    numbers = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    found: NDArray[np.float64] = numbers.to_numpy().reshape(-1, width)
    return found
