"""The page: a report as one HTML file that needs no network and no script."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import yaml
from PIL import Image
from pydantic import JsonValue

from tasks.evaluate.facts import Facts
from tasks.evaluate.report import WorstExample
from tasks.evaluate.template import render

MAX_CLASSES = 50  # that have a row each
MAX_SIDE = 480  # pixels of a worst example's image; a larger one is made smaller
TINY_SIDE = 64  # pixels up to which an image is shown as the squares that it consists of
WIDE = 1100  # pixels of a plot that takes the whole width, at plots.DPI
SHORT_TEXT = 40  # characters of a text that goes into a row of values
_TITLES = {
    "learning_curves": "Learning curves",
    "confusion_matrix": "Confusion matrix",
    "classes": "Precision, recall and F1 of the classes of the lowest F1",
    "roc": "ROC curve",
    "precision_recall": "Precision and recall over all thresholds",
    "errors": "Errors, and predicted against true numbers",
    "calibration": "Reliability: how many predictions of a confidence are right",
}
"""Of the plots, in the order of the page."""


@dataclass(frozen=True)
class Picture:
    """An image inside the page."""

    uri: str
    width: int
    height: int

    @property
    def is_wide(self) -> bool:
        """Whether its letters are too small to read in half the width of the page."""
        return self.width > WIDE

    @property
    def is_tiny(self) -> bool:
        """Whether it has so few pixels that each is to be seen."""
        return max(self.width, self.height) <= TINY_SIDE


def render_page(facts: Facts, files: Mapping[str, bytes], inputs: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """Returns the page.

    `files`: the images by their names in the report directory, plots and those of the worst examples; `inputs`: what
    WORST_INPUTS holds. Names and texts of the data are shown as they are and mean nothing to a browser.
    """
    report, classes = facts.report, facts.report.classes
    if len(classes) > MAX_CLASSES:
        classes = tuple(sorted(classes, key=lambda each: each.f1)[:MAX_CLASSES])
    plots = {
        name: {"title": title, "image": _picture(files[f"{name}.png"])}
        for name, title in _TITLES.items()
        if f"{name}.png" in files
    }
    return render(
        "page.html",
        facts=facts,
        report=report,
        config=yaml.safe_dump(facts.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        confusion=plots.pop("confusion_matrix", None),
        reliability=plots.pop("calibration", None),
        plots=list(plots.values()),
        classes=classes,
        num_left_out=len(report.classes) - len(classes),
        slices={column: list(found) for column, found in groupby(report.slices, key=lambda each: each.column)},
        worst=[_worst(each, files, inputs.get(str(each.id), {})) for each in report.worst],
        loading=facts.loading(),
    )


def _worst(example: WorstExample, files: Mapping[str, bytes], inputs: Mapping[str, JsonValue]) -> dict[str, Any]:
    texts = {name: value for name, value in inputs.items() if isinstance(value, str) and len(value) > SHORT_TEXT}
    return {
        "example": example,
        "images": {name: _picture(files[file], max_side=MAX_SIDE) for name, file in example.images.items()},
        "texts": texts,
        "rows": {name: "missing" if value is None else value for name, value in inputs.items() if name not in texts},
    }


def _picture(data: bytes, *, max_side: int | None = None) -> Picture:
    with Image.open(io.BytesIO(data)) as image:
        kind, (width, height) = str(image.format).lower(), image.size
        if max_side is not None and max(width, height) > max_side:
            small, smaller = image.convert("RGB"), io.BytesIO()
            small.thumbnail((max_side, max_side))
            small.save(smaller, kind)
            data, (width, height) = smaller.getvalue(), small.size
    return Picture(f"data:image/{kind};base64,{base64.b64encode(data).decode()}", width, height)
