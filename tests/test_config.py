"""The config: what it takes, what it refuses, and in which words."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest

from tasks.config import (
    OPERATIONAL_FIELDS,
    Mirrored,
    build_config,
    check_images,
    check_texts,
    load_config,
)
from tasks.duration import Duration
from tasks.errors import ConfigError
from tasks.optimization import ConstantSchedule, CosineSchedule, EarlyStopping
from tasks.target import FIGURES, Metric


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"train": {"totl": "3 epochs"}},
            "train.totl='3 epochs': no such field; did you mean train.total? train has allow_bn_change, best_metric, "
            "checkpoint_every, class_weights, clip, deterministic, early_stopping, ema, invariance, jit_compile, "
            "keep_checkpoints, label_smoothing, loss, max_restarts, max_rollbacks, microbatch, "
            "on_nonfinite, optimizer, precision, profile_steps, recompute, seed, steps_per_call, total",
        ),
        (
            {"window": 5},
            "window=5: no such field; did you mean feed.window? a config has data, deploy, distribute, evaluate, "
            "export, feed, model, name, promote, sweep, tracking, train",
        ),
        (
            {"distribute": {"kind": "one_device", "num_replicas": 2}},
            "distribute.num_replicas=2: no such field; distribute has hang_timeout_seconds, kind, on_lost_device, "
            "slow_phase_factor, when_busy",
        ),
        (
            {"distribute": {"kind": "mirored"}},
            "distribute.kind='mirored': must be one of one_device, mirrored, multi_worker_mirrored, "
            "model_parallel, hybrid, parameter_server; did you mean mirrored?",
        ),
        (
            {"data": {"source": {"path": "x.csv"}}},
            "data.source.path='x.csv': no such field; data.source has kind",
        ),
        (
            {"distribute": {"kind": "mirrored", "num_replicas": "x"}},
            "distribute.num_replicas='x': must be a whole number or auto (How many replicas; auto: every GPU, or 2 "
            "logical CPU devices where there is none); the default is auto",
        ),
        (
            {"train": {"total": "3 epoch"}},
            "train.total='3 epoch': must be a whole number and a unit: '500 steps', '3 epochs' or '100000 examples' "
            "(Length of training); the default is 10 epochs",
        ),
        (
            {"train": {"optimizer": {"schedule": {"kind": "cosine", "warmup": 3}}}},
            "train.optimizer.schedule.warmup=3: must be a whole number and a unit: '500 steps', '3 epochs' or "
            "'100000 examples' (Length of the rise from zero; default: none); correct it in the file or as key=value",
        ),
        (
            {"train": {"precision": "float23"}},
            "train.precision='float23': must be one of float32, float64, mixed_float16, mixed_bfloat16, auto (Type of "
            "weights and activations; float64: for proofs; mixed: 16 bits, weights in float32; auto: by the GPUs); "
            "did you mean float32?",
        ),
        (
            {"train": {"deterministic": "yess"}},
            "train.deterministic='yess': must be true or false (Only kernels that give the same bits on every run; a "
            "resumed run is bit-equal only with it); the default is true",
        ),
        (
            {"feed": {"prefetch_batches": 0}},
            "feed.prefetch_batches=0: must be greater than or equal to 1 or auto (Global batches made ahead of the "
            "step that takes them; auto: 4, or what fits into memory_limit); the default is auto",
        ),
        (
            {"data": {"shard_size": "lots"}},
            "data.shard_size='lots': must be a whole number and a unit, such as '64 KB', '128 MiB' or '6 GB' (Aimed-at "
            "size of one shard ('64 KB', '128 MB'): large enough to stream, small enough to spread); the default is "
            "128 MB",
        ),
        (
            {"data": {"splits": {"train": 0.9}}},
            "data.splits={'train': 0.9}: must be shares that add up to 1, not 1.1 (Which example goes to which "
            "split); correct it in the file or as key=value",
        ),
        (
            {"data": {"splits": {"kind": "group", "column": "path", "pattern": "what?"}}},
            "data.splits.pattern='what?': must be a regular expression with a (group) in it (Regular expression whose "
            "first group is taken out of the column's text, such as 'patient(\\d+)'; default: all); correct it in the "
            "file or as key=value",
        ),
        (
            {"feed": {"augment": [{"kind": "flip"}, {"size": 3}]}},
            "feed.augment.1.kind: is required but missing; add it, one of flip, pad_crop, random_resized_crop, color, "
            "cutout, rand_augment, mixup, cutmix",
        ),
        (
            {"feed": {"augment": [{"kind": "flip", "probability": 2}]}},
            "feed.augment.0.probability=2: must be less than or equal to 1 (Share of the examples that are mirrored in "
            "each of these directions); the default is 0.5",
        ),
        (
            {"feed": {"augment": [{"kind": "random_resized_crop", "area": [0.5]}]}},
            "feed.augment.0.area.1: is required but missing (Least and largest share of the image that the window "
            "covers); add it",
        ),
        (
            {"feed": {"augment": {"kind": "flip"}}},
            "feed.augment={'kind': 'flip'}: must be a list (Random changes of the training images, in this order; "
            "never in evaluation or in the exported model); correct it in the file or as key=value",
        ),
        ({"train": 3}, "train=3: must be a group of fields; correct it in the file or as key=value"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_refused_with_path_value_rule_and_fix(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_config({"name": "digits"} | tree)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("columns", "a", "data.source.columns='a': must be a list ("),
        ("columns", [], "data.source.columns=[]: must be a list of at least 1 ("),
        ("types", 1, "data.source.types=1: must be a group of fields ("),
        ("delimiter", "::", "data.source.delimiter='::': must be text of at most 1 character(s) ("),
        ("delimiter", "", "data.source.delimiter='': must be text of at least 1 character(s) ("),
        ("decimal_point", "-", "data.source.decimal_point='-': must be one of '.', ',' ("),
    ],
)
def test_rules_are_told_in_plain_words(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_config(
            {"name": "digits", "data": {"source": {"kind": "table", "path": "x", "target": "y", field: value}}}
        )
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("https://ann:geheim@example.org/x.csv", "user name or password"),
        ("s3://geheim@bucket/x.csv", "user name or password"),
        ("https://example.org/x.csv?a=1&access_token=geheim", "access_token"),
        ("https://b.s3.amazonaws.com/x?X-Amz-Credential=geheim&X-Amz-Signature=geheim", "X-Amz-Credential"),
        ("https://example.org/x?sig=geheim", "sig"),
    ],
)
def test_url_with_a_secret_is_refused_and_not_repeated(url: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^data\.source\.path='.*': must have no {what}, which") as refused:
        build_config({"name": "any", "data": {"source": {"kind": "text_folder", "path": url}}})
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["https://example.org/@v/x.zip?download=1&keyword=a", "s3://bucket/a@b", "a@b/c?token=x"]
)
def test_url_without_a_secret_is_taken(path: str) -> None:
    build_config({"name": "any", "data": {"source": {"kind": "text_folder", "path": path}}})


def test_every_wrong_field_gets_a_line() -> None:
    with pytest.raises(ConfigError) as refused:
        build_config({"name": "digits", "feed": {"block": 0, "blok": 1}})
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == ["feed.block=0", "feed.blok=1"]


def test_config_needs_a_name() -> None:
    with pytest.raises(ConfigError) as refused:
        build_config({})
    assert str(refused.value) == (
        "name: is required but missing (Name of the data set, the experiment and the model: lower case letters, "
        "digits, underscores); add it"
    )


def test_key_given_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("name: digits\ntrain:\n  seed: 1\n  seed: 2\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert str(refused.value) == f"{path}, line 4: not valid YAML: 'seed' is given twice; keep one"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [x\n", "{path}, line 2: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("digits\n", "{path}: holds str, not a mapping; begin with 'name: ...'"),
        ("", "{path}: holds NoneType, not a mapping; begin with 'name: ...'"),
    ],
)
def test_file_that_is_no_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert str(refused.value) == message.format(path=path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read .*; give the path of a config such as conf/"):
        load_config(tmp_path / "none.yaml")


def test_overrides_come_last_and_create_groups() -> None:
    config = build_config(
        {"name": "digits", "train": {"total": "3 epochs", "seed": 1}},
        ["train.total=5 steps", "feed.cache=none", "model.args.width=64", "data.shard_size=64 KB"],
    )
    assert (config.train.total, config.train.seed) == (Duration("5 steps"), 1)
    assert (config.feed.cache, config.model.args, config.data.shard_size) == ("none", {"width": 64}, "64 KB")


def test_override_of_a_field_begins_a_group_that_is_null() -> None:
    tree = build_config({"name": "digits"}).model_dump(mode="json")
    assert tree["train"]["early_stopping"] is None
    assert build_config(tree, ["train.early_stopping.patience=3"]).train.early_stopping == EarlyStopping(patience=3)


def test_override_of_a_kind_drops_the_fields_of_the_old_kind() -> None:
    tree = {"name": "digits", "train": {"optimizer": {"schedule": {"kind": "cosine", "warmup": "2 epochs"}}}}
    path = "train.optimizer.schedule.kind"
    assert build_config(tree, [f"{path}=constant"]).train.optimizer.schedule == ConstantSchedule()
    assert build_config(tree, [f"{path}=cosine"]).train.optimizer.schedule == CosineSchedule(
        warmup=Duration("2 epochs")
    )
    mirrored = build_config(tree, ["distribute.kind=mirrored", "distribute.num_replicas=4"])
    assert mirrored.distribute == Mirrored(num_replicas=4)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.total",
            "override 'train.total': must be key=value with a dotted key, such as train.total='3 epochs'",
        ),
        ("train..total=3", "override 'train..total=3': must be key=value with a dotted key, such as train.total="),
        ("name.first=x", "override 'name.first=x': name is 'digits', which has no fields"),
        ("train.seed=[3", "override 'train.seed=[3', line 1: not valid YAML: expected ',' or ']', but got"),
    ],
)
def test_override_that_is_none_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build_config({"name": "digits"}, [override])
    assert str(refused.value).startswith(message)


def test_config_is_frozen_and_survives_a_round_trip() -> None:
    config = build_config({"name": "digits", "train": {"optimizer": {"schedule": {"kind": "constant"}}}})
    assert build_config(config.model_dump(mode="json")) == config
    with pytest.raises(ValueError, match="frozen"):
        config.name = "other"  # type: ignore[misc]


def test_folder_of_the_file_is_the_models_folder_unless_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("name: digits\n")
    assert load_config(path).model.folder == str(tmp_path)
    assert load_config(path, ["model.folder=/elsewhere"]).model.folder == "/elsewhere"


def test_identity_leaves_out_operational_fields_only() -> None:
    def paths(tree: dict[str, Any], prefix: str = "") -> set[str]:
        return {prefix + key for key in tree} | {
            path for key, value in tree.items() if isinstance(value, dict) for path in paths(value, f"{prefix}{key}.")
        }

    left_out: set[str] = set()
    weights = {"kind": "file", "file": "first.safetensors", "sha256": "0" * 64}
    for source in (
        {"kind": "image_folder", "path": "images"},
        {"kind": "tfds", "name": "mnist"},
        {"kind": "array", "read": "mine:read"},
    ):
        config = build_config({"name": "any", "data": {"source": source}, "model": {"warm_start": weights}})
        left_out |= paths(config.model_dump(mode="json")) - paths(config.identity())
    left_out -= {
        "data.target",
        "data.target.kind",
        "data.append",
    }  # at their defaults, as before there were such fields
    assert {path for path in left_out if path.rpartition(".")[0] not in OPERATIONAL_FIELDS} == OPERATIONAL_FIELDS


def test_fields_that_came_later_leave_the_names_of_shards_alone_where_they_are_not_used() -> None:
    splits = {"kind": "time", "column": "day"}
    named = build_config({"name": "any", "data": {"splits": splits}}).data.identity()
    assert named.keys().isdisjoint({"target", "append"})
    assert named["splits"].keys().isdisjoint({"validation_window", "test_window"})
    splits |= {"validation_window": "1 day", "test_window": "7 days"}
    assert build_config({"name": "any", "data": {"splits": splits}}).data.identity()["splits"].items() >= splits.items()


@pytest.mark.parametrize(
    ("source", "encoded"),
    [
        ({"kind": "image_folder", "path": "images"}, True),
        ({"kind": "image_folder", "path": "images", "store": "raw", "short_side": 32}, False),
        ({"kind": "array", "read": "mine:read", "images": ["photo"]}, True),
        ({"kind": "array", "read": "mine:read"}, False),
    ],
)
def test_encoded_images_need_a_size_before_anything_is_fetched(source: dict[str, Any], encoded: bool) -> None:
    tree = {"name": "any", "data": {"source": source}}
    check_images(build_config(tree, ["feed.image_size=[32, 32]"]))
    with pytest.raises(ConfigError, match=r"^feed\.image_size: must be given") if encoded else nullcontext():
        check_images(build_config(tree))


def test_words_need_a_vocabulary_before_anything_is_fetched() -> None:
    words = ["feed.text.kind=words"]
    check_texts(build_config({"name": "any"}))
    check_texts(build_config({"name": "any"}, [*words, "data.text.split=whitespace"]))
    with pytest.raises(ConfigError, match=r"^feed\.text\.kind=words: needs the vocabulary"):
        check_texts(build_config({"name": "any"}, words))


@pytest.mark.parametrize("shares", [[0.99, 0.01], [0.5, 0.5], [-1, 0.5]])
def test_quantiles_out_of_order_are_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"^feed\.clip_quantiles=.*must be two shares between 0 and 1, the lower one"):
        build_config({"name": "any", "feed": {"clip_quantiles": shares}})


def test_kind_of_a_group_has_a_default() -> None:
    config = build_config(
        {"name": "digits", "distribute": {"num_replicas": 2}}, ["data.splits.train=0.7", "data.splits.test=0.2"]
    )
    assert (config.distribute.kind, config.data.splits.kind) == ("mirrored", "fraction")


def test_paths_hold_wherever_the_next_command_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def path(source: dict[str, Any]) -> tuple[str | None, ...]:
        config = build_config({"name": "any", "data": {"source": source}}, folder=tmp_path / "conf")
        return tuple(getattr(config.data.source, name, None) for name in ("path", "folder", "data_dir"))

    assert path({"kind": "text_folder", "path": "texts/*"}) == (f"{tmp_path}/texts/*", None, None)
    assert path({"kind": "text_folder", "path": "https://example.org/a.zip"})[0] == "https://example.org/a.zip"
    assert path({"kind": "tfds", "name": "mnist", "data_dir": "d"}) == (None, f"{tmp_path}/conf", f"{tmp_path}/d")
    assert path({"kind": "array", "read": "mine:read", "folder": "code"}) == (None, f"{tmp_path}/code", None)


def test_every_figure_of_a_validation_can_be_a_metric() -> None:
    figures = {f"val_{figure}" for figures in FIGURES.values() for figure in figures}
    assert set(get_args(Metric)) == figures


@pytest.mark.parametrize("kind", ["workers", "model_parallel", "hybrid", "parameter_server"])
def test_the_digits_differ_only_in_where_they_run(kind: str) -> None:
    conf = Path(__file__).parents[1] / "conf"
    same = {"data", "feed", "model", "evaluate", "export"}
    digits, other = (load_config(conf / f"{name}.yaml") for name in ("digits", f"digits_{kind}"))
    assert other.model_dump(include=same) == digits.model_dump(include=same)
