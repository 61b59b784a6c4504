"""Wording: how a message shows a value, a number of things, and the names of many."""

from collections.abc import Sequence
from typing import Any

NUM_NAMED = 10  # names that a message gives before it only counts


def shown(value: Any) -> str:
    """Returns a value as a message shows it: a text quoted, a long one cut."""
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Returns '1 file' or '2 files'."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str], number: int | None = None) -> str:
    """Returns the first ten names, and how many more there are of `number`, or of these."""
    more = (number or len(names)) - NUM_NAMED
    return ", ".join(names[:NUM_NAMED]) + (f" and {more:,} more" if more > 0 else "")
