"""The scan: every good example is encoded once, every bad one is listed with its reason, and statistics are exact."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from tasks.errors import DataError
from tasks.prepare.batches import encode_frames
from tasks.prepare.keys import hash_keys
from tasks.prepare.manifest import QUARANTINE, BadExample, Feature, FeatureStatistics
from tasks.prepare.scan import KEYS, SCALARS, kept_scan, scan
from tasks.prepare.source import Batch, SourceSchema
from tasks.prepare.statistics import QUANTILES, scalar_features, scalars_of, summarize
from tasks.prepare.tally import Tally
from tests.prepare.framed import cut

MARK = Feature(kind="missing", shape=(), dtype="int64", storage="int64_list")
FEATURES = {
    "price": Feature(kind="number", shape=(), dtype="float64", storage="raw_bytes", missing="price_missing"),
    "price_missing": MARK,
    "cut": Feature(kind="category", shape=(), dtype="string", storage="bytes_list"),
}


@dataclass
class Rows:
    """A source of 100 rows in batches of 30, of which every `bad_every`th is bad."""

    bad_every: int = 0
    schema = SourceSchema(FEATURES, inputs=("price", "cut"), label_map=("no", "yes"))
    notes: tuple[str, ...] = ("read as it is",)

    def read(self) -> Iterator[Batch]:
        for start in range(0, 100, 30):
            rows = np.arange(start, min(start + 30, 100))
            is_bad = rows % self.bad_every == 0 if self.bad_every else np.zeros(len(rows), bool)
            good = rows[~is_bad]
            yield Batch(
                rows=good,
                keys=[f"table.csv:{row + 1}" for row in good],
                labels=good % 2,
                columns={
                    "price": np.where(good % 10 == 0, 0.0, good / 8),
                    "price_missing": (good % 10 == 0).astype(np.int64),
                    "cut": [b"fair" if row % 3 else "größer".encode() for row in good],
                },
                bad=tuple(
                    BadExample(path="table.csv", row=int(row) + 1, column="price", reason="is 'x', not a number")
                    for row in rows[is_bad]
                ),
            )


def test_frames_lie_in_the_order_of_the_source_and_are_read_in_any(tmp_path: Path) -> None:
    scanned = scan(Rows(), tmp_path, seed=0, max_bad_fraction=0)
    expected = [
        framed
        for batch in Rows().read()
        for frames in encode_frames({**batch.columns, "label": batch.labels, "id": batch.rows}, scanned.features)
        for framed in cut(frames)
    ]
    assert len(scanned.spool) == 100
    assert scanned.spool.places.sizes.tolist() == list(map(len, expected))
    order = np.random.default_rng(0).permutation(100)
    assert [frame for chunk in scanned.spool.frames(order) for frame in cut(chunk)] == [expected[row] for row in order]
    assert scanned.labels.tolist() == [row % 2 for row in range(100)]


def test_bad_examples_are_counted_and_listed_with_path_row_column_and_reason(tmp_path: Path) -> None:
    scanned = scan(Rows(bad_every=40), tmp_path, seed=0, max_bad_fraction=0.03)
    assert (len(scanned.spool), scanned.num_bad) == (97, 3)
    listed = [json.loads(line) for line in (tmp_path / QUARANTINE).read_text().splitlines()]
    assert [line["row"] for line in listed] == [1, 41, 81]
    assert listed[0] == {"path": "table.csv", "row": 1, "column": "price", "reason": "is 'x', not a number"}
    keys = pyarrow.parquet.read_table(tmp_path / KEYS).to_pylist()
    assert keys[:2] == [{"id": 1, "key": "table.csv:2"}, {"id": 2, "key": "table.csv:3"}]
    assert len(keys) == 97


def test_too_many_bad_examples_fail_with_the_first_ten(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        scan(Rows(bad_every=5), tmp_path, seed=0, max_bad_fraction=0.19)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("data.max_bad_fraction=0.19: 20 of 100 examples cannot be used")
    assert lines[1] == "  table.csv, row 1, column price is 'x', not a number"
    assert lines[10] == "  table.csv, row 46, column price is 'x', not a number"
    assert lines[11:] == ["  and 10 more"]


def test_just_as_many_bad_examples_as_are_allowed_are_left_out() -> None:
    # 0.29 x 100 is a little less than 29 in floating point.
    tally = Tally()
    bad = tuple(BadExample(path="table.csv", reason="is bad") for _ in range(29))
    keys = [str(row) for row in range(71)]
    tally.add(
        Batch(rows=np.arange(71), keys=keys, labels=np.zeros(71, np.int64), columns={}, bad=bad), hash_keys(keys, 0)
    )
    tally.check(0.29)
    with pytest.raises(DataError, match="29 of 100 examples cannot be used"):
        tally.check(0.28)


def test_source_without_a_good_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="100 of 100 examples cannot be used"):
        scan(Rows(bad_every=1), tmp_path, seed=0, max_bad_fraction=0.999)


def test_statistics_are_of_the_chosen_examples_alone(tmp_path: Path) -> None:
    scanned = scan(Rows(), tmp_path, seed=0, max_bad_fraction=0)
    chosen = np.arange(100) < 50
    found = summarize({tmp_path / SCALARS: chosen}, scanned.features)
    known = np.array([row / 8 for row in range(50) if row % 10])
    price = found["price"]
    assert (price.num_missing, price.min, price.max) == (5, 1 / 8, 49 / 8)
    assert (price.mean, price.std) == pytest.approx((known.mean(), known.std()), rel=1e-14)
    assert price.quantiles == {f"{q:g}": pytest.approx(np.quantile(known, q)) for q in QUANTILES}
    assert found["cut"] == FeatureStatistics(vocabulary=(("fair", 33), ("größer", 17)))
    assert set(found) == {"price", "cut"}


def test_images_stand_in_the_statistics_by_their_height_and_width() -> None:
    def encoded(width: int, height: int) -> bytes:
        Image.new("L", (width, height)).save(file := io.BytesIO(), "PNG")
        return file.getvalue()

    image = Feature(kind="image", shape=(None, None, 1), dtype="string", storage="bytes_list")
    scalars = scalars_of({"photo": [encoded(3, 5), encoded(70_0, 2)]}, {"photo": image})
    assert {name: column.to_pylist() for name, column in scalars.items()} == {
        "photo.width": [3, 700],
        "photo.height": [5, 2],
    }


def test_a_finished_scan_is_found_again_and_no_other(tmp_path: Path) -> None:
    assert kept_scan(tmp_path) is None
    scanned = scan(Rows(bad_every=40), tmp_path, seed=0, max_bad_fraction=0.1)
    assert kept_scan(tmp_path) is None
    replace(scanned, split_by=[f"file{row % 3}" for row in range(97)]).keep()
    found = kept_scan(tmp_path)
    assert found is not None
    assert (found.schema, found.notes, found.num_bad) == (scanned.schema, scanned.notes, 3)
    assert found.split_by == [f"file{row % 3}" for row in range(97)]
    for name in ("labels", "hashes"):
        assert np.array_equal(getattr(found, name), getattr(scanned, name))
    rows = np.arange(97)
    assert [cut(c) for c in found.spool.frames(rows)] == [cut(c) for c in scanned.spool.frames(rows)]
    kept = tmp_path / "kept.json"
    kept.write_text(kept.read_text().replace('"boot": "', '"boot": "another start, '))
    assert kept_scan(tmp_path) is None


def test_tensors_of_bytes_stand_in_the_statistics_by_their_brightness() -> None:
    tensors = {
        "pixels": Feature.of("tensor", "uint8", (2, 2, 3)),
        "large": Feature.of("tensor", "uint8", (100, 100, 3)),
        "none": Feature.of("tensor", "uint8", (0, 3)),
        "vector": Feature.of("tensor", "float32", (3,)),
    }
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    large = np.stack([np.full((100, 100, 3), 7, np.uint8), np.tile(np.array([0, 30, 60], np.uint8), (100, 100, 1))])
    columns = {"pixels": pixels, "large": large, "none": np.zeros((2, 0, 3), np.uint8), "vector": np.ones((2, 3), "f")}
    found = scalars_of(columns, tensors)
    assert found["pixels.brightness"].to_pylist() == [5.5, 17.5]
    assert found["large.brightness"].to_pylist() == [7, pytest.approx(30, abs=1)]  # of all channels alike
    assert found.keys() == scalar_features(tensors, texts=False).keys() == {"pixels.brightness", "large.brightness"}


def test_statistics_of_nothing_known_are_none(tmp_path: Path) -> None:
    scanned = scan(Rows(), tmp_path, seed=0, max_bad_fraction=0)
    chosen = np.arange(100) % 10 == 0
    assert summarize({tmp_path / SCALARS: chosen}, scanned.features)["price"] == FeatureStatistics(num_missing=10)
