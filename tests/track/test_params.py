"""Params: every field of the config under its dotted name."""

from tasks.config import build_config
from tasks.schema import fields_of
from tasks.track.params import MAX_NAME_LENGTH, MAX_VALUE_LENGTH, compare, flatten


def test_names_are_dotted_and_values_are_text() -> None:
    tree = {"name": "a", "model": {"args": {"width": 64, "deep": True, "sizes": [1, 2]}, "folder": None}, "x": 1e-3}
    assert flatten(tree) == {
        "name": "a",
        "model.args.width": "64",
        "model.args.deep": "true",
        "model.args.sizes": "[1, 2]",
        "model.folder": "null",
        "x": "0.001",
    }


def test_every_plain_field_of_a_config_is_a_param() -> None:
    config = build_config({"name": "a"})
    params = flatten(config.model_dump(mode="json"))
    assert params["train.total"] == "10 epochs"
    assert params.keys() <= fields_of(type(config)).keys()


def test_long_values_end_with_dots() -> None:
    assert flatten({"a": "x" * MAX_VALUE_LENGTH}) == {"a": "x" * MAX_VALUE_LENGTH}
    assert flatten({"a": "x" * (MAX_VALUE_LENGTH + 1)}) == {"a": "x" * (MAX_VALUE_LENGTH - 3) + "..."}


def test_names_that_mlflow_would_refuse_are_made_fit() -> None:
    assert flatten({"a": {"b/c;d": 1}}) == {"a.b_c_d": "1"}
    assert [len(name) for name in flatten({"a" * 300: 1})] == [MAX_NAME_LENGTH]


def test_only_new_params_are_logged_and_changed_ones_become_tags() -> None:
    assert compare({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "0", "d": "4"}) == ({"c": "3"}, {"changed.b": "2"})
