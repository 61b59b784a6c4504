"""Worst: the examples with the highest losses, and their inputs in a form that a page can show."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasks.evaluate.judged import Judged, in_words
from tasks.evaluate.report import WORST_INPUTS, WorstExample
from tasks.prepare.manifest import JPEG, Feature, ShardManifest

MAX_NUMBERS = 64  # of a tensor that is written out


def worst_rows(judged: Judged, count: int) -> NDArray[np.int64]:
    """Returns the rows of the `count` highest losses, highest first, equal ones by id."""
    return np.lexsort((judged.ids, -judged.losses))[:count]


def write_worst(
    directory: Path, manifest: ShardManifest, judged: Judged, inputs: Sequence[Mapping[str, Any]]
) -> tuple[WorstExample, ...]:
    """Returns the examples of the highest losses, after writing their inputs into a report's `directory`.

    `inputs` has for each of `worst_rows` {feature: its value as it is stored}, with what marks missing values. Images
    become files of their own, encoded ones as they are; so do uint8 tensors of one or three channels, as PNG, all of
    one feature times the whole number that brings the lightest of them nearest to white. All else goes into
    WORST_INPUTS, None where it is missing.
    """
    if not inputs:
        return ()
    images = [name for name in inputs[0] if _is_image(manifest.features[name])]
    factor = {name: _factor([each[name] for each in inputs]) for name in images}
    place = directory / WORST_INPUTS
    place.parent.mkdir()
    found, values = [], {}
    for row, example in zip(worst_rows(judged, len(inputs)), inputs, strict=True):
        id = int(judged.ids[row])
        files = {}
        for number, name in enumerate(images):
            stem = f"{id}" if len(images) == 1 else f"{id}-{number}"
            file = place.with_name(f"{stem}.{_suffix(example[name])}")
            _write_image(file, example[name], factor[name])
            files[name] = str(file.relative_to(directory))
        values[str(id)] = {name: _plain(example, name, manifest) for name in manifest.inputs if name not in images}
        found.append(
            WorstExample(
                id=id,
                target=in_words(judged.targets[row], manifest.label_map),
                predicted=in_words(judged.decisions[row], manifest.label_map),
                loss=judged.losses[row],
                images=files,
            )
        )
    place.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")
    return tuple(found)


def _is_image(feature: Feature) -> bool:
    if feature.kind == "tensor" and feature.dtype == "uint8":
        return len(feature.shape) == 3 and feature.shape[2] in (1, 3)
    return feature.kind == "image"


def _suffix(image: Any) -> str:
    return "jpg" if isinstance(image, bytes) and image.startswith(JPEG) else "png"


def _factor(images: Sequence[Any]) -> int:
    if isinstance(images[0], bytes):
        return 1
    return int(255 // max(1, *(int(image.max(initial=0)) for image in images)))


def _write_image(file: Path, image: Any, factor: int) -> None:
    if isinstance(image, bytes):
        file.write_bytes(image)
    else:
        pixels = image * np.uint8(factor)
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file)


def _plain(example: Mapping[str, Any], name: str, manifest: ShardManifest) -> Any:
    """Returns a value as JSON has it: a text, a number or None, a list of them, or in words what is too long."""
    value, mark = example[name], manifest.features[name].missing
    if mark is not None and example[mark]:
        return None
    if isinstance(value, bytes):
        return value.decode()
    values = np.asarray(value)
    if values.size > MAX_NUMBERS:
        return f"{values.dtype} {list(values.shape)}"
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None  # JSON has no NaN
    return plain.tolist()
