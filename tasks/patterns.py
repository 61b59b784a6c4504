"""Pattern: a regular expression of a config, looked for in the paths of layers or weights."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator

from tasks.errors import ConfigError

PATHS_SHOWN = 12


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return text


Pattern = Annotated[str, AfterValidator(_is_pattern)]


def found_in(patterns: Sequence[str], paths: Iterable[str], *, setting: str) -> list[str]:
    """Returns the paths in which one of the patterns is found, in their order.

    Raises ConfigError that begins with `setting` if a pattern is found in none.
    """
    paths = list(paths)
    for pattern in patterns:
        if not any(re.search(pattern, path) for path in paths):
            shown = ", ".join(paths[:PATHS_SHOWN]) + (", ..." if len(paths) > PATHS_SHOWN else "")
            raise ConfigError(f"{setting}: {pattern!r} is found in none of {shown}")
    return [path for path in paths if any(re.search(pattern, path) for pattern in patterns)]
