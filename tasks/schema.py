"""Schema: the fields of a pydantic tree, and what is said of a value that does not fit one."""

import difflib
import re
import types
import typing
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from tasks.secrets import hide_secrets

# What pydantic would say in the terms of Python.
_RULES = {
    "bool_parsing": "true or false",
    "dict_type": "a group of fields",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "invalid-json-value": "text, a number, true, false, null, a list or a mapping",
    "invalid_key": "the name of a field",
    "list_type": "a list",
    "model_attributes_type": "a group of fields",
    "model_type": "a group of fields",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "text of at most {max_length} character(s)",
    "string_too_short": "text of at least {min_length} character(s)",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Returns {dotted path: pydantic FieldInfo} of every field below `model`, groups and those in lists included."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        found[prefix + name] = field
        for section in _sections(field.annotation):
            found |= fields_of(section, f"{prefix}{name}.")
    return found


def explain(error: ValidationError, tree: dict[str, Any], model: type[BaseModel]) -> str:
    """Returns one line for each wrong field: path, value, rule, fix."""
    # The branches of a union each have an error; they are one field to the user.
    wrong: dict[str, list[Any]] = {}
    sections: dict[str, type[BaseModel]] = {}
    for item in error.errors():
        path, section, value = _locate(item["loc"], tree, model)
        if isinstance(item["input"], dict) and value is not None:
            item["input"] = value  # as the user wrote it, without a kind that was filled in
        path += ".kind" if item["type"].startswith("union_tag") else ""
        wrong.setdefault(path, []).append(item)
        sections[path] = section
    return "\n".join(_sentence(path, items, sections[path], fields_of(model)) for path, items in wrong.items())


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, Annotated, tuple):
        return [section for part in typing.get_args(annotation) for section in _sections(part)]
    return []


def _locate(location: tuple[Any, ...], tree: Any, model: type[BaseModel]) -> tuple[str, type[BaseModel], Any]:
    """Returns the dotted path as the user would write it, the innermost section on the way, and what the user gave."""
    path: list[str] = []
    sections: list[type[BaseModel]] = [model]
    section: type[BaseModel] = model
    for part in location:
        if isinstance(part, int) and isinstance(tree, list):  # in a list of groups each is one of the same
            path.append(str(part))
            tree = tree[part] if part < len(tree) else None
            continue
        fields = [each.model_fields[part] for each in sections if part in each.model_fields]
        if not fields and len(sections) > 1:  # the kind that chose one of a union
            sections = [each for each in sections if each.model_fields["kind"].default == part]
        elif fields or (isinstance(tree, dict) and part in tree):
            path.append(str(part))
            sections = [below for field in fields for below in _sections(field.annotation)]
            tree = tree.get(part) if isinstance(tree, dict) else None
        section = sections[0] if sections else section
    return ".".join(path), section, tree


def _sentence(path: str, items: list[Any], section: type[BaseModel], known: dict[str, Any]) -> str:
    kind = items[0]["type"]
    parent, _, name = path.rpartition(".")
    value = items[0]["ctx"]["tag"] if kind == "union_tag_invalid" else items[0]["input"]
    if kind == "extra_forbidden":
        siblings = sorted(section.model_fields)
        close = [f"{parent}.{sibling}".lstrip(".") for sibling in difflib.get_close_matches(name, siblings, n=1)]
        elsewhere = [key for key in known if key.rpartition(".")[2] == name and key != path]
        fix = "".join(f"did you mean {key}? " for key in (close + elsewhere)[:1])
        return f"{path}={value!r}: no such field; {fix}{parent or 'a config'} has {', '.join(siblings)}"
    field = section.model_fields.get(name, known.get(_plain(path)))
    about = f" ({field.description.rstrip('.')})" if field is not None and field.description else ""
    if kind == "union_tag_not_found":
        kinds = [each.model_fields["kind"].default for each in _sections(known[_plain(parent)].annotation)]
        return f"{path}: is required but missing; add it, one of {', '.join(kinds)}"
    if kind == "missing":
        return f"{path}: is required but missing{about}; add it"
    options = [option for item in items for option in _options(item)]
    rule = " or ".join(_rule(item) for item in items)
    # Some rules are of what a value must have or leave, not of what it must be.
    must = rule if rule.startswith("must ") else f"must be {rule}"
    return f"{path}={hide_secrets(repr(value))}: {must}{about}; {_fix(value, options, field)}"


def _plain(path: str) -> str:
    """Returns the path as `fields_of` has it, without the numbers of lists."""
    return re.sub(r"\.\d+(?![^.])", "", path)


def _options(item: Any) -> list[str]:
    """Returns the words that the field takes, if it takes only some."""
    context = item.get("ctx", {})
    return re.findall(r"'([^']*)'", context.get("expected_tags") or context.get("expected") or "")


def _rule(item: Any) -> str:
    options = _options(item)
    if options:
        shown = [option if option[:1].isalnum() else repr(option) for option in options]
        return "one of " + ", ".join(shown) if len(shown) > 1 else shown[0]
    if item["type"] in _RULES:
        return _RULES[item["type"]].format(**item.get("ctx", {}))
    return str(item["msg"]).removeprefix("Value error, ").removeprefix("must be ").removeprefix("Input should be ")


def _fix(value: Any, options: list[str], field: Any) -> str:
    close = difflib.get_close_matches(str(value), options, n=1)
    if close:
        return f"did you mean {close[0]}?"
    default = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
    if isinstance(default, (str, int, float)) and not options[1:]:
        return f"the default is {str(default).lower() if isinstance(default, bool) else default}"
    return "correct it in the file or as key=value"
