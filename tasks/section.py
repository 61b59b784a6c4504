"""Section: a group of a config's fields, and a choice between kinds of one."""

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A group of fields; unknown names are refused, the docstring under a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def kind_if_none(default: str) -> BeforeValidator:
    """Returns the validator that gives a mapping without a `kind` the default one."""

    def with_kind(value: Any) -> Any:
        return {"kind": default, **value} if isinstance(value, dict) else value

    return BeforeValidator(with_kind)
