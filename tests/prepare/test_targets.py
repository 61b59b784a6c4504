"""What is learned is stored as it stands in the source, counted and split in its shares; what cannot be is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.config import build_config
from tasks.download.download import download
from tasks.errors import ConfigError, DataError
from tasks.prepare.inspect import inspect_source
from tasks.prepare.manifest import QUARANTINE, ShardManifest
from tasks.prepare.targets import class_counts, strata
from tests.target_kinds import COLUMNS, NUM_ROWS, prepared


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("targets")


def table(workspace: Path) -> dict[str, list[str]]:
    lines = (workspace / "table.csv").read_text().splitlines()[1:]
    return dict(zip(COLUMNS.split(","), map(list, zip(*(line.split(",") for line in lines), strict=True)), strict=True))


def stored(directory: Path, manifest: ShardManifest) -> dict[int, Any]:
    """Returns the label of each example by its id, as TensorFlow reads it."""
    import tensorflow as tf

    from tasks.feed.parse import parse_batch

    files = [str(directory / shard.file) for split in manifest.splits.values() for shard in split.shards]
    records = tf.stack(list(tf.data.TFRecordDataset(files)))
    parsed = parse_batch(records, manifest.features, ["label", "id"])
    return dict(zip(parsed["id"].numpy().tolist(), parsed["label"].numpy(), strict=True))


def test_numbers_are_stored_to_the_bit_with_the_mean_and_deviation_of_train(workspace: Path) -> None:
    _, shards = prepared("regression", workspace)
    manifest, columns = shards.manifest(), table(workspace)
    wanted = np.array([columns["price"], columns["size"]], np.float64).T
    found = stored(shards.directory, manifest)
    np.testing.assert_array_equal([found[row] for row in range(NUM_ROWS)], wanted)
    assert (manifest.label_map, manifest.target_kind, manifest.num_outputs) == (("price", "size"), "regression", 2)
    assert all(split.class_counts == () for split in manifest.splits.values())
    train = stored(shards.directory, manifest.model_copy(update={"splits": {"train": manifest.splits["train"]}}))
    mean, std = manifest.target_scale
    np.testing.assert_allclose(mean, np.mean(list(train.values()), axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, np.std(list(train.values()), axis=0), rtol=1e-9)
    assert json.loads((shards.directory / "features.json").read_text())["featuresDict"]["features"]["label"][
        "tensor"
    ] == {"shape": {"dimensions": ["2"]}, "dtype": "float64", "encoding": "bytes"}


def test_the_positive_class_is_the_second(workspace: Path) -> None:
    _, shards = prepared("binary", workspace)
    manifest, columns = shards.manifest(), table(workspace)
    found = stored(shards.directory, manifest)
    assert (manifest.label_map, manifest.num_outputs) == (("plus", "minus"), 1)
    assert [found[row] for row in range(NUM_ROWS)] == [int(sign == "minus") for sign in columns["sign"]]


def test_names_in_one_text_and_columns_of_flags_are_the_classes_that_are_there(workspace: Path) -> None:
    columns = table(workspace)
    _, shards = prepared("multi_label", workspace)
    manifest = shards.manifest()
    wanted = [[int(name in tags.split("|")) for name in ("low", "odd", "wide")] for tags in columns["tags"]]
    found = stored(shards.directory, manifest)
    assert manifest.label_map == ("low", "odd", "wide")
    np.testing.assert_array_equal([found[row] for row in range(NUM_ROWS)], wanted)
    counts = np.array([split.class_counts for split in manifest.splits.values()])
    np.testing.assert_array_equal(counts.sum(axis=0), np.sum(wanted, axis=0))
    assert counts.min() > 0

    _, shards = prepared("flags", workspace)
    found = stored(shards.directory, shards.manifest())
    wanted = [
        [int(high), int(wide == "true")] for high, wide in zip(columns["is_high"], columns["is_wide"], strict=True)
    ]
    np.testing.assert_array_equal([found[row] for row in range(NUM_ROWS)], wanted)


def test_splits_are_stratified_by_the_rarest_class_and_by_the_tenth_of_a_number(workspace: Path) -> None:
    hot = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0]], np.uint8)
    assert strata(hot).tolist() == [2, 1, 0, 3, 2]  # by the rank of the rarest, without one last
    assert class_counts(hot, "abc") == (4, 2, 1)
    assert np.bincount(strata(np.arange(100.0)[::-1, None])).tolist() == [10] * 10

    _, shards = prepared("regression", workspace)
    manifest = shards.manifest()
    everything = np.array(list(stored(shards.directory, manifest).values()))[:, 0]
    (test,) = (
        np.array(list(stored(shards.directory, manifest.model_copy(update={"splits": {"test": split}})).values()))
        for split in [manifest.splits["test"]]
    )
    bands = np.searchsorted(np.quantile(everything, np.arange(1, 10) / 10), test[:, 0], side="right")
    assert np.bincount(bands, minlength=10).tolist() == pytest.approx([2.3] * 10, abs=1), "2 or 3 of each tenth"


def test_bad_targets_are_listed_by_row_and_reason(tmp_path: Path, workspace: Path) -> None:
    shutil.copy(workspace / "table.csv", tmp_path / "table.csv")
    with (tmp_path / "table.csv").open("a") as file:
        file.write("0,0,plus,low||odd,1,false,nan,0\n0,0,plus,,2,false,1e999,0\n")
    for kind, reasons in (
        ("regression", ["is missing", "is 1e999, not a finite number"]),
        ("multi_label", ["has an empty name in it, which is not one of data.source.classes"]),
        ("flags", ["is 2, not 0 or 1"]),
    ):
        _, shards = prepared(kind, tmp_path, {"null_tokens": ["", "nan"]}, max_bad_fraction=0.1)
        bad = [json.loads(line) for line in (shards.directory / QUARANTINE).read_text().splitlines()]
        assert [each["reason"] for each in bad] == reasons


@pytest.mark.parametrize(
    ("kind", "source", "target", "said"),
    [
        ("regression", {"target": "sign"}, {}, "holds no numbers, which data.target.kind=regression learns"),
        ("regression", {"classes": ["a"]}, {}, "data.target.kind=regression has none; leave them out"),
        ("binary", {"target": "tags"}, {"positive": None}, "class\\(es\\) .*, not two; take data.target.kind=multicl"),
        ("binary", {}, {"positive": "other"}, "is no class of the source, which has minus and plus"),
        ("binary", {"target": ["sign", "tags"]}, {}, "data.target.kind=binary has one column"),
        ("multi_label", {"target": "price"}, {}, "takes one column of text with the names of classes between '|'"),
        ("flags", {"target": ["is_high", "sign"]}, {}, "or several columns of 0 and 1"),
        ("flags", {"target": ["is_high", "is_high"]}, {}, "'is_high' is given twice"),
        ("multi_label", {"classes": ["low", "odd", "wide", "new"]}, {}, "no example of class new"),
    ],
)
def test_a_target_that_the_source_does_not_hold_is_refused_by_name(
    workspace: Path, kind: str, source: dict[str, Any], target: dict[str, Any], said: str
) -> None:
    kinds = {"kind": "multi_label"} if kind == "flags" else {"kind": kind}
    with pytest.raises((ConfigError, DataError), match=said.replace("'|'", r"'\|'")):
        prepared(kind, workspace, source, target=kinds | target)


def test_an_inspection_shows_the_numbers_that_are_learned(workspace: Path) -> None:
    config, _ = prepared("regression", workspace)
    found = inspect_source(config.data, download(config.data, workspace))
    assert found.problem is None
    assert found.classes == ()
    assert (found.features["price"].kind, found.statistics["price"].mean) == ("label", pytest.approx(1e6, rel=1e-3))
    assert found.first[0].label.startswith("price 1.00")


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("regression", {"feed": {"sampling": "class_balanced"}}, "feed.sampling=class_balanced"),
        ("multi_label", {"feed": {"augment": [{"kind": "mixup"}]}}, "feed.augment: mixup"),
        ("regression", {"train": {"class_weights": "balanced"}}, "train.class_weights"),
        ("regression", {"train": {"label_smoothing": 0.1}}, "train.label_smoothing"),
        ("binary", {"train": {"loss": "mae"}}, "train.loss=mae"),
        ("multiclass", {"evaluate": {"threshold": 0.4}}, "evaluate.threshold=0.4"),
        ("regression", {"train": {"best_metric": "val_accuracy"}}, "train.best_metric=val_accuracy"),
        (
            "multi_label",
            {"train": {"early_stopping": {"metric": "val_r2"}}},
            "train.early_stopping.metric=val_r2",
        ),
        ("regression", {"data": {"source": {"kind": "digits"}}}, "data.source.kind=digits"),
    ],
)
def test_a_setting_that_does_not_fit_the_kind_is_refused_by_name(
    kind: str, settings: dict[str, Any], said: str
) -> None:
    tree: dict[str, Any] = {
        "name": "any",
        "data": {"source": {"kind": "table", "path": "t.csv", "target": "y"}, "target": {"kind": kind}},
    }
    for group, fields in settings.items():
        tree[group] = {**tree.get(group, {}), **fields}
    with pytest.raises(ConfigError, match=f"{said}: does not fit data.target.kind={kind}, "):
        build_config(tree)


def test_the_best_metric_is_the_first_of_the_kind_unless_named() -> None:
    source = {"kind": "table", "path": "t.csv", "target": "y"}
    for kind, metric in (("multiclass", "val_accuracy"), ("binary", "val_accuracy"), ("regression", "val_loss")):
        config = build_config({"name": "any", "data": {"source": source, "target": {"kind": kind}}})
        assert config.train.best_metric == metric
        assert build_config(config.model_dump(mode="json")) == config
