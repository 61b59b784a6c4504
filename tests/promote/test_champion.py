"""The champion is judged on the challenger's examples, whatever it was trained on; what cannot be compared is named."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tasks.errors import ConfigError
from tasks.export.manifest import ExportManifest, SignatureInput, SignatureOutput
from tasks.prepare.manifest import FeatureStatistics
from tasks.promote.champion import aligned, check_fit, outputs_of
from tasks.promote.record import Champion
from tasks.track.client import tracking_uri
from tests.every_kind import STATISTICS, manifest_of
from tests.promote.conftest import Registered

ANSWERS = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]])


def _of_kind(kind: str, *label_map: str) -> Any:
    scale = {"label.0": FeatureStatistics(mean=2.0, std=0.5), "label.1": FeatureStatistics(mean=0.0, std=4.0)}
    return manifest_of({}, label_map=label_map, config={"target": {"kind": kind}}, statistics=STATISTICS | scale)


def test_the_champion_answers_the_shards_as_its_own_evaluation_did(
    every_kind: Registered, workers: ModuleType, tmp_path: Path
) -> None:
    settings = every_kind.report.settings.model_copy(update={"slices": ("colour",), "min_slice_examples": 1})
    found = Champion.model_validate(
        workers.call(
            "tasks.promote.champion:judge",
            {
                "workspace": str(every_kind.run.workspace),
                "run_id": every_kind.run.id,
                "shards": every_kind.shards.model_dump(mode="json"),
                "report": every_kind.report.model_copy(update={"settings": settings}).model_dump(mode="json"),
                "reference": "every_kind/1",
                "uri": tracking_uri(every_kind.run),
            },
            log=tmp_path / "log",
        )
    )
    assert found.version == 1
    assert found.figures == pytest.approx(every_kind.report.figures, abs=1e-5)
    assert (found.p_value, found.test) == (
        1,
        "McNemar, exact: only the challenger is right on 0, only the champion on 0",
    )
    assert found.slices.keys() == {
        "colour=(missing)",
        *(f"colour={colour}" for colour in ("blue", "grün", "never seen", "red")),
    }


def test_classes_are_matched_by_name() -> None:
    # "yes" has gone, and counts as wrong; of "new" the champion knows nothing.
    manifest = manifest_of({}, label_map=("später", "new", "no"))
    found = aligned(("no", "yes", "später"), manifest, ANSWERS)
    assert found.tolist() == [[0.25, 0, 0.5, 0.25], [0.125, 0, 0.125, 0.75]]
    assert outputs_of(manifest, found).argmax(axis=1).tolist() == [2, 3]
    assert np.isfinite(outputs_of(manifest, found)).all()
    assert aligned(("a", "b"), _of_kind("binary", "b", "a"), ANSWERS[:, :2]).tolist() == [[0.25, 0.5], [0.75, 0.125]]
    # Each of any number of classes is said or not, whatever becomes of the others.
    assert aligned(("a", "b"), _of_kind("multi_label", "b", "c"), ANSWERS[:, :2]).tolist() == [[0.25, 0], [0.75, 0]]


def test_outputs_are_those_of_a_model_that_answers_so() -> None:
    assert outputs_of(_of_kind("regression", "x", "y"), np.array([[3.0, 2.0]])).tolist() == [[2.0, 0.5]]
    assert outputs_of(_of_kind("binary", "a", "b"), np.array([[0.5, 0.5]])).tolist() == [[0.0]]
    certain = outputs_of(_of_kind("multi_label", "a", "b"), np.array([[0.0, 1.0]]))
    assert np.isfinite(certain).all()
    assert (certain > 0).tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("changes", "kind", "label_map", "message"),
    [
        (
            {"inputs": {"age": SignatureInput(feature="age", kind="number", shape=(), dtype="int64")}},
            "multiclass",
            ("no",),
            r"models:/m/1: takes age as number int64 \[\], which in the shards is not there, so that it cannot be",
        ),
        (
            {"inputs": {"count": SignatureInput(feature="count", kind="number", shape=(), dtype="float32")}},
            "multiclass",
            ("no",),
            r"takes count as number float32 \[\], which in the shards is number int64 \[\]",
        ),
        (
            {},
            "multi_label",
            ("no",),
            r"answers one class, which cannot be compared with data\.target\.kind=multi_label",
        ),
        ({}, "regression", ("no",), r"answers one class, which cannot be compared with data\.target\.kind=regression"),
        ({}, "binary", ("no", "maybe"), r"answers no, yes, where the shards have no, maybe, so that maybe, yes cannot"),
    ],
)
def test_a_champion_that_does_not_fit_is_refused_by_name(
    changes: dict[str, Any], kind: str, label_map: tuple[str, ...], message: str, every_kind: Registered
) -> None:
    outputs = {
        "probabilities": SignatureOutput(shape=(2,), dtype="float32"),
        "class": SignatureOutput(shape=(), dtype="int64"),
    }
    exported: ExportManifest = every_kind.exported.model_copy(
        update={"label_map": ("no", "yes"), "outputs": outputs, **changes}
    )
    check_fit("models:/m/1", every_kind.exported, manifest_of({}))
    with pytest.raises(ConfigError, match=message):
        check_fit("models:/m/1", exported, _of_kind(kind, *label_map))
