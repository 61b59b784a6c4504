"""Facts of evaluations made by hand, of every kind of target, with all that a report may hold; nothing is trained."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tasks.config import build_config
from tasks.evaluate.facts import Facts
from tasks.evaluate.report import (
    Calibration,
    CalibrationBin,
    ClassFigures,
    EvalReport,
    Interval,
    NumberFigures,
    SliceFigures,
    WorstExample,
)
from tasks.prepare.manifest import Feature, ShardManifest, SplitManifest
from tasks.target import FIGURES
from tasks.train.result import TrainResult

CLASSES = {
    "multiclass": (
        "<script>alert(1)</script>",
        "tar & feather | \"quoted\" 'all'",
        "a_class_with_a_name_of_" + "m" * 60 + "any_letters",
    ),
    "binary": ("benign", "malignant"),
    "multi_label": tuple(f"label {place}" for place in range(60)),
    "regression": ("price", "size"),
}
TEXT = "<b>Not bold</b> & a sentence that goes on for a while, as what people write does.\n" * 12
INPUTS: dict[str, dict[str, Any]] = {
    "3": {"comment": TEXT, "colour": "<i>red</i>", "weight (g)": 1.5, "vector": [0.25, -1.0, 3.0]},
    "17": {"comment": "", "colour": None, "weight (g)": None, "vector": [0.0, 0.0, 0.0]},
}


def facts(kind: str, **changes: Any) -> Facts:
    """Returns the facts of a run that was trained on two replicas and judged on 500 test examples."""
    names, figures = CLASSES[kind], FIGURES[kind]
    is_regression = kind == "regression"
    target = {"kind": kind} | ({"positive": "malignant"} if kind == "binary" else {})
    columns = ["colour", "weight (g)"]
    config = build_config(
        {
            "name": f"hand_made_{kind}",
            "data": {
                "source": {"kind": "table", "path": "/data/hand made.csv", "target": "price", "columns": columns},
                "target": target,
            },
        }
    )
    value = {name: 12345.678 if name in ("mae", "rmse") else 0.875 for name in figures}
    report = EvalReport(
        checkpoint=Path("/workspace/runs/some/checkpoints/1200"),
        split="test",
        num_examples=500,
        settings=config.evaluate,
        figures=value,
        headline=figures[0],
        intervals={name: Interval(low=0.9 * each, high=1.1 * each, num_resamples=1000) for name, each in value.items()},
        classes=()
        if is_regression
        else tuple(
            ClassFigures(name=name, num_examples=10 * place, precision=0.5, recall=1.0, f1=1 / (1 + place))
            for place, name in enumerate(names)
        ),
        numbers=tuple(NumberFigures(name=name, mae=1.5, rmse=2345.6, r2=None) for name in names)
        if is_regression
        else (),
        slices=tuple(
            SliceFigures(column=column, value=text, num_examples=count, is_small=count < 20, figures=of_slice)
            for column in columns
            for text, count, of_slice in (
                ("<em>red</em>", 481, value),
                ("0.5 to 1.25", 12, value),
                ("(missing)", 7, {figures[0]: 0.25}),
            )
        ),
        calibration=None
        if is_regression
        else Calibration(
            ece=0.0625,
            bins=(
                CalibrationBin(low=0.4, high=0.5, num_examples=100, mean_confidence=0.45, accuracy=0.5),
                CalibrationBin(low=0.9, high=1.0, num_examples=400, mean_confidence=0.97, accuracy=0.9),
            ),
        ),
        worst=(
            WorstExample(id=3, target=names[0], predicted=names[1], loss=9.5, images={"photo": "worst/3.jpg"}),
            WorstExample(id=17, target=names[1], predicted=names[0], loss=7.25, images={"pixels": "worst/17.png"}),
            WorstExample(id=99, target=names[1], predicted=names[0], loss=7.0),
        ),
        num_leaked=4,
        leaked=(3, 17, 99, 100),
        directory=Path("/workspace/runs/some/report"),
    )
    trained = TrainResult(
        best_checkpoint=report.checkpoint,
        last_checkpoint=Path("/workspace/runs/some/checkpoints/1500"),
        best_step=1200,
        best_value=0.9,
        num_steps=1500,
        num_epochs=3,
        num_replicas=2,
        num_parameters=1234567,
        devices=("CPU:0", "CPU:1"),
        examples_per_second=14547.2,
        step_seconds_p50=0.0041,
        step_seconds_p95=0.0059,
        input_wait_fraction=0.221,
        input_wait_seconds_p50=0.0009,
        input_wait_seconds_p95=0.0013,
        input_advice="22% of the step time is a wait for input, most likely for the stage batch on 2 cores",
        resumed_from_step=0,
        skipped_steps=(7,),
    )
    values: dict[str, Any] = {
        "run_id": f"hand_made_{kind}-20261130T212221Z-f1d0ffd59b2b",
        "config": config,
        "manifest": _manifest(kind),
        "report": report,
        "model": Path(f"/workspace/models/hand_made_{kind}/hand_made_{kind}-20261130T212221Z-f1d0ffd59b2b"),
        "trained": trained,
        "tracking_uri": "http://127.0.0.1:5000",
    }
    return Facts(**values | changes)


def files(kind: str) -> dict[str, bytes]:
    """Returns the images of such a report: blank ones of the sizes of its plots, noise of the worst examples."""
    plots = {"learning_curves": (1500, 600)}
    if kind != "regression":
        plots["calibration"] = (750, 900)
    match kind:
        case "multiclass":
            plots |= {"confusion_matrix": (840, 720), "roc": (750, 900), "precision_recall": (750, 900)}
        case "binary":
            plots |= {"confusion_matrix": (840, 720), "roc": (750, 750), "precision_recall": (750, 750)}
        case "multi_label":
            plots["classes"] = (1050, 1365)
        case "regression":
            plots["errors"] = (1500, 1200)
    rng = np.random.default_rng(0)
    return {f"{name}.png": _encoded(Image.new("L", size, "white"), "PNG") for name, size in plots.items()} | {
        "worst/3.jpg": _encoded(Image.fromarray(rng.integers(0, 256, (700, 900, 3), np.uint8)), "JPEG"),
        "worst/17.png": _encoded(Image.fromarray(rng.integers(0, 256, (8, 8), np.uint8)), "PNG"),
    }


def _manifest(kind: str) -> ShardManifest:
    return ShardManifest(
        name=f"hand_made_{kind}",
        version="1.0.0",
        data_digest="98c2419fc95cc779",
        source_digest="5" * 64,
        seed=0,
        offset_stride=64,
        compression="none",
        inputs=("colour", "weight (g)"),
        target="label",
        id="id",
        features={"colour": Feature.of("category"), "weight (g)": Feature.of("number", "float64")},
        label_map=CLASSES[kind],
        splits={
            name: SplitManifest(num_examples=count, class_counts=(), shards=())
            for name, count in (("train", 4000), ("validation", 500), ("test", 500))
        },
        statistics={},
        config={"target": {"kind": kind}},
        num_bad=2,
        notes=("2 hidden files were left out: .a, <b>",),
        code_version="0",
    )


def _encoded(image: Image.Image, kind: str) -> bytes:
    written = io.BytesIO()
    image.save(written, kind)
    return written.getvalue()
