"""Class folders: one label map, and nothing left out in silence."""

from pathlib import Path
from typing import Any

import pytest

from tasks.config import DataConfig
from tasks.errors import ConfigError
from tasks.prepare.folders import FolderPlan, empty_folders, plan_folders

SPLIT_FILES = ["train/cat/1", "train/cat/2", "train/dog/1", "val/cat/3", "val/dog/a/b/4"]


def config(splits: dict[str, Any] | None = None, **source: Any) -> DataConfig:
    fields = {"kind": "text_folder", "path": "pets", **source}
    return DataConfig.model_validate({"source": fields, "splits": splits or {}})


def plan(files: list[str], splits: dict[str, Any] | None = None, **source: Any) -> FolderPlan:
    return plan_folders(files, config(splits, **source))


def found(planned: FolderPlan) -> list[tuple[str, str, str | None]]:
    return [(file.path, planned.label_map[file.label], file.split_by) for file in planned.files]


def test_the_first_folder_is_the_class_however_deep_the_file() -> None:
    planned = plan(["cat/a", "cat/x/y/b", "dog/c"])
    assert found(planned) == [("cat/a", "cat", None), ("cat/x/y/b", "cat", None), ("dog/c", "dog", None)]
    assert (planned.label_map, planned.notes) == (("cat", "dog"), ())


def test_with_official_splits_the_first_folder_is_the_split() -> None:
    planned = plan(SPLIT_FILES, {"kind": "official", "validation": "val", "test": 0.1})
    assert planned.label_map == ("cat", "dog")
    assert found(planned)[2:4] == [("train/dog/1", "dog", "train"), ("val/cat/3", "cat", "val")]
    assert found(planned)[4] == ("val/dog/a/b/4", "dog", "val")


def test_classes_that_are_numbers_are_sorted_as_numbers() -> None:
    assert plan([f"{name}/x" for name in ("1", "10", "2", "a10", "a9")]).label_map == ("1", "2", "10", "a9", "a10")
    assert plan([f"{name}/x" for name in ("-1", "-3", "0")]).label_map == ("-3", "-1", "0")


def test_the_label_map_is_the_one_that_is_given() -> None:
    assert plan(["cat/a", "dog/a"], classes=["dog", "cat"]).label_map == ("dog", "cat")


def test_a_folder_that_is_not_among_the_classes_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"data.source.classes: lacks 2 class folders .*\(cow, eel\); add them"):
        plan(["cat/a", "cow/a", "eel/a", "dog/a"], classes=["dog", "cat"])


def test_a_class_without_a_file_keeps_its_label_and_is_said() -> None:
    planned = plan(["cat/a", "dog/a"], classes=["ant", "cat", "dog"])
    assert found(planned) == [("cat/a", "cat", None), ("dog/a", "dog", None)]
    assert planned.notes == ("1 class of data.source.classes without a file (ant)",)


def test_a_class_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.source.classes: 'cat' is given twice"):
        plan(["cat/a", "dog/a"], classes=["cat", "dog", "cat"])


def test_files_outside_of_class_folders_are_counted_and_named() -> None:
    files = [f"{number}.txt" for number in range(12)]
    assert plan([*files, "cat/a", "dog/a"]).notes == (
        "12 files in no class folder: left out (0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, 6.txt, 7.txt, 8.txt, 9.txt "
        "and 2 more)",
    )
    planned = plan([*SPLIT_FILES, "train/stray"], {"kind": "official", "validation": "val", "test": 0.1})
    assert planned.notes == ("1 file in no class folder: left out (train/stray)",)


def test_files_outside_of_class_folders_alone_are_an_error() -> None:
    for files in (["a", "b"], []):
        with pytest.raises(ConfigError, match=rf"none of its {len(files)} files lies in a class folder; put the files"):
            plan(files)


def test_a_single_class_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"has only the class folder pets, .* give the folder that holds the class"):
        plan(["pets/cat/a", "pets/dog/a"])


@pytest.mark.parametrize("names", [("train", "test"), ("Train", "VAL", "test"), ("training", "validation")])
def test_split_folders_are_not_taken_for_classes(names: tuple[str, ...]) -> None:
    files = [f"{split}/{name}/x" for split in names for name in ("cat", "dog")]
    for splits in ({}, {"kind": "file", "train": "train/*"}):
        with pytest.raises(ConfigError, match=r"hold the same class folders, .* set data.splits.kind=official"):
            plan(files, splits)


def test_class_folders_may_be_named_like_splits() -> None:
    assert plan(["train/a", "test/b"]).label_map == ("test", "train")
    assert plan(["train/steam/a", "test/blood/b", "bus/c"]).label_map == ("bus", "test", "train")


def test_an_official_split_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"data.splits.validation=validation: .* it has train, val; name one"):
        plan(SPLIT_FILES, {"kind": "official", "test": 0.1})
    with pytest.raises(ConfigError, match=r"data.splits.train=train: .* it has cat, dog; name one"):
        plan(["cat/a", "dog/a"], {"kind": "official"})


def test_a_folder_that_is_no_split_is_left_out_and_said() -> None:
    files = [*SPLIT_FILES, "unlabelled/none/1", "unlabelled/none/2"]
    planned = plan(files, {"kind": "official", "validation": "val", "test": 0.1})
    assert planned.label_map == ("cat", "dog")
    assert planned.notes == (
        "2 files in folders that are no split of data.splits (train, val): left out (unlabelled/none/1, "
        "unlabelled/none/2)",
    )


def test_a_split_by_file_goes_by_the_path() -> None:
    assert found(plan(["cat/a", "dog/b"], {"kind": "file"}))[1] == ("dog/b", "dog", "dog/b")


def test_a_group_is_taken_out_of_the_path() -> None:
    splits = {"kind": "group", "column": "path", "pattern": r"patient(\d+)|(none)"}
    planned = plan(["cat/patient12_1", "dog/patient7_3", "dog/none", "dog/other"], splits)
    assert [file.split_by for file in planned.files] == ["12", "7", "", ""]
    assert [file.bad is None for file in planned.files] == [True, True, False, False]
    assert planned.files[3].bad == r"has no group: its path does not match data.splits.pattern=patient(\d+)|(none)"
    whole = plan(["cat/a", "dog/a"], {"kind": "group", "column": "path"})
    assert [file.split_by for file in whole.files] == ["cat/a", "dog/a"]


def test_splits_by_what_a_file_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.splits.column=patient: .* has no columns; set it to path"):
        plan(["cat/a", "dog/a"], {"kind": "group", "column": "patient"})
    with pytest.raises(ConfigError, match=r"data.splits.kind=time: .* use fraction, official, group or file"):
        plan(["cat/a", "dog/a"], {"kind": "time", "column": "path"})


def test_empty_folders_are_no_classes_and_named(tmp_path: Path) -> None:
    for folder in ("cat", "dog", "fox/den", "owl", ".ipynb_checkpoints", "__MACOSX/cat"):
        (tmp_path / folder).mkdir(parents=True)
    files = ["cat/a", "dog/a"]
    empty = empty_folders(tmp_path, files, config())
    planned = plan_folders(files, config(), empty=empty)
    assert planned.label_map == ("cat", "dog")
    assert planned.notes == ("2 folders without a file: no class, left out (fox, owl)",)
    official = config({"kind": "official", "validation": 0.1, "test": 0.1})
    (tmp_path / "train" / "ape").mkdir(parents=True)
    assert sorted(empty_folders(tmp_path, [*files, "train/cat/a"], official)) == ["fox", "owl", "train/ape"]
