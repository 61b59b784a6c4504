"""The worst examples: those of the highest losses, with inputs that can be looked at."""

import json

import numpy as np
from PIL import Image

from tasks.evaluate.judged import Judged
from tasks.evaluate.report import WORST_INPUTS
from tasks.evaluate.worst import worst_rows, write_worst
from tests.every_kind import LABEL_MAP, make_example, manifest_of


def judged(losses, ids):
    labels = np.arange(len(ids)) % 3
    return Judged(np.array(ids), labels, np.zeros(0), np.zeros(0), (labels + 1) % 3, np.array(losses))


def test_the_highest_loss_comes_first_and_equal_ones_by_id():
    assert worst_rows(judged([1.0, 3.0, 2.0, 3.0], [4, 9, 1, 5]), 3).tolist() == [3, 1, 2]
    assert worst_rows(judged([1.0], [4]), 3).tolist() == [0]


def test_inputs_are_kept_as_images_and_as_json(tmp_path):
    ids = [2, 3, 4]  # a JPEG, a PNG, a JPEG; of 3 the weight is missing, of 4 the colour
    examples = judged([1.0, 3.0, 2.0], ids)
    inputs = [make_example(id) for id in (3, 4, 2)]
    for example in inputs:
        example["pixels"] = example["pixels"] % 60
    inputs[1]["pixels"][0, 0, 0] = 60
    found = write_worst(tmp_path, manifest_of({}), examples, inputs)
    assert [(each.id, each.loss) for each in found] == [(3, 3.0), (4, 2.0), (2, 1.0)]
    assert [(each.target, each.predicted) for each in found] == [
        (LABEL_MAP[1], LABEL_MAP[2]),
        (LABEL_MAP[2], LABEL_MAP[0]),
        (LABEL_MAP[0], LABEL_MAP[1]),
    ]
    assert found[0].images == {"pixels": "worst/3-0.png", "photo": "worst/3-1.png"}
    assert found[1].images["photo"] == "worst/4-1.jpg"
    for each, example in zip(found, inputs, strict=True):
        assert (tmp_path / each.images["photo"]).read_bytes() == example["photo"]
        with Image.open(tmp_path / each.images["pixels"]) as image:  # 4 * 60 = 240; 5 * 60 would be over white
            np.testing.assert_array_equal(np.asarray(image), example["pixels"][..., 0] * 4)

    kept = json.loads((tmp_path / WORST_INPUTS).read_text())
    assert list(kept) == ["3", "4", "2"]
    assert kept["3"] == {
        "vector": inputs[0]["vector"].tolist(),
        "comment": "",
        "colour": "never seen",
        "weight (g)": None,
        "count": 3,
    }
    assert kept["4"]["colour"] is None
    assert kept["2"]["comment"] == "größer als der Platz, den sie hat"


def test_without_examples_nothing_is_written(tmp_path):
    assert write_worst(tmp_path, manifest_of({}), judged([], []), []) == ()
    assert list(tmp_path.iterdir()) == []
