"""The template: what becomes of templates/ with an evaluation's facts in it."""

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from tasks.evaluate.facts import figure_name, number

# What Markdown and the HTML in it take as theirs; an underscore within a word means nothing.
_MARKDOWN = re.compile(r"([\\`*\[\]<>|#~&]|(?<!\w)_|_(?!\w))")


def render(template: str, /, **values: Any) -> str:
    """Returns a template of this room filled in.

    In HTML every value is escaped, in Markdown those that pass `markdown`. A value that is not given is an error.
    """
    return _ENVIRONMENT.get_template(template).render(values)


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


_ENVIRONMENT = Environment(
    loader=PackageLoader("tasks.evaluate"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters |= {"number": number, "figure_name": figure_name, "markdown": _markdown}
