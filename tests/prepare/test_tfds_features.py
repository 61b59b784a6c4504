"""The TFDS metadata of every kind of feature: tfds.load reads what the source holds, exactly."""

import base64
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tasks.config import build_config
from tasks.prepare.manifest import Shards
from tasks.prepare.tfds import tfds_metadata
from tests.any_source import prepared
from tests.every_kind import manifest_of

pytestmark = pytest.mark.usefixtures("workers")

ODD_CLASSES = ("\u00a0ein Ding, 'x'", 'größer "y"', "a\tb", "#3", "\\n", "[] {}")
UNREADABLE = ("one\nline", "two")  # TFDS takes a file of lines for the names

# A process of its own: reading a data set touches the devices, which other tests want to set up.
LOADER = """
import base64, json, sys
import numpy as np
import tensorflow_datasets as tfds

def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [str(value.dtype), value.tolist()]

found = {}
for name, data_dir in json.loads(sys.argv[1]).items():
    splits, info = tfds.load(name, data_dir=data_dir, with_info=True)
    found[name] = {
        "classes": info.features["label"].names,
        "counts": {split: info.splits[split].num_examples for split in splits},
        "examples": {
            int(example["id"]): {feature: plain(value) for feature, value in example.items()}
            for split in splits.values() for example in split.as_numpy_iterator()
        },
    }
print(json.dumps(found))
"""

READER = """
import io
import numpy as np
from PIL import Image

CLASSES = {classes!r}

def image(index, mode, form):
    data = io.BytesIO()
    values = np.random.default_rng(index).integers(0, 256, (2 + index % 3, 3, 3), np.uint8)
    Image.fromarray(values if mode == "RGB" else values[..., 0]).save(data, form)
    return data.getvalue()

def example(index):
    rng = np.random.default_rng(index)
    return {{
        "whole": [2**63 - 1, -(2**63), 0][index % 3],
        "short": np.float32(0.1) * np.float32(index),
        "long": 0.1 * index,
        "truth": index % 2 == 0,
        "category": ["", "grün", "a, b"][index % 3],
        "text": ["", "zwei\\nZeilen", "Tab\\tund NUL\\0"][index % 3],
        "picture": image(index, ("RGB", "L")[index % 2], ("png", "jpeg")[index // 2 % 2]),
        "bytes_": rng.integers(0, 256, (2, 3), np.uint8),
        "wholes": rng.integers(-(2**63), 2**63 - 1, (3,)),
        "shorts": rng.random((1, 2), np.float32),
        "longs": rng.random((2, 1, 2)),
        "label": CLASSES[index % len(CLASSES)],
    }}

def read():
    return map(example, range(60))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What TFDS finds in the shards of three sources, and in `expected` the examples of the first."""
    top = tmp_path_factory.mktemp("tfds")
    shards = {"every": _array(top, "every", ODD_CLASSES), "lines": _array(top, "lines", UNREADABLE), "gaps": _gaps(top)}
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            LOADER,
            json.dumps({name: str(each.directory.parents[1]) for name, each in shards.items()}),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert process.returncode == 0, process.stderr
    found: dict[str, Any] = json.loads(process.stdout)
    for name, each in shards.items():
        assert found[name]["counts"] == each.num_examples
        found[name]["label_map"] = list(each.manifest().label_map)
    return found


def _array(top: Path, name: str, classes: tuple[str, ...]) -> Shards:
    (top / f"reader_of_{name}.py").write_text(READER.format(classes=classes))
    source = {"kind": "array", "folder": str(top), "read": f"reader_of_{name}:read"}
    options = {"text": ["text"], "images": ["picture"], "classes": classes}
    return prepared(build_config({"name": name, "data": {"source": source | options}}), top / "workspace")


def _gaps(top: Path) -> Shards:
    """A table with values that are missing."""
    with open(top / "gaps.csv", "w", newline="") as file:
        rows = (
            [index or "", index / 8 if index % 3 else "", "rot" if index % 5 else "", index % 2] for index in range(60)
        )
        csv.writer(file).writerows([["number", "share", "colour", "y"], *rows])
    source = {"kind": "table", "path": str(top / "gaps.csv"), "target": "y", "missing": "keep"}
    return prepared(build_config({"name": "gaps", "data": {"source": source}}), top / "workspace")


def test_every_feature_is_read_as_the_reader_gave_it(read: dict[str, Any]) -> None:
    namespace: dict[str, Any] = {}
    exec(READER.format(classes=ODD_CLASSES), namespace)  # noqa: S102 - the reader itself
    found = read["every"]
    assert sorted(map(int, found["examples"])) == list(range(60))
    for id, stored in found["examples"].items():
        expected = namespace["example"](int(id))
        label = expected.pop("label")
        pixels = expected.pop("picture")
        assert found["label_map"][stored.pop("label")[1]] == label
        assert stored.pop("id") == ["int64", int(id)]
        assert stored.pop("picture") == ["uint8", _pixels(pixels)]
        assert stored == {name: _as_read(value) for name, value in expected.items()}


def test_missing_values_are_read_with_their_marks(read: dict[str, Any]) -> None:
    found = read["gaps"]["examples"]
    assert len(found) == 60
    for id, stored in found.items():
        index = int(id)
        assert stored == {
            "number": ["int64", index],
            "number_missing": ["int64", int(index == 0)],
            "share": ["float64", index / 8 if index % 3 else 0.0],
            "share_missing": ["int64", int(index % 3 == 0)],
            "colour": _as_read("rot" if index % 5 else ""),
            "colour_missing": ["int64", int(index % 5 == 0)],
            "label": ["int64", index % 2],
            "id": ["int64", index],
        }


def test_class_names_are_read_but_for_blanks_around_them(read: dict[str, Any]) -> None:
    assert tuple(read["every"]["label_map"]) == ODD_CLASSES
    assert read["every"]["classes"] == [name.strip() for name in ODD_CLASSES]


@pytest.mark.parametrize("names", [UNREADABLE, ("one", "\rtwo"), ("one", "one "), ("one", ""), ("one", " ")])
def test_class_names_that_are_no_lines_are_left_to_the_manifest(read: dict[str, Any], names: tuple[str, str]) -> None:
    assert tuple(read["lines"]["label_map"]) == UNREADABLE
    assert read["lines"]["classes"] == ["0", "1"]
    texts = tfds_metadata(manifest_of({}, label_map=names))
    assert set(texts) == {"dataset_info.json", "features.json"}


def _as_read(value: Any) -> Any:
    """Returns a value of the reader as LOADER prints it."""
    if isinstance(value, str):
        return base64.b64encode(value.encode()).decode()
    value = np.asarray(value, "int64" if isinstance(value, bool) else None)
    return [str(value.dtype), value.tolist()]


def _pixels(data: bytes) -> Any:
    # TensorFlow's own decoder: of a JPEG, Pillow's may differ by one.
    return tf.io.decode_image(data, channels=3).numpy().tolist()
