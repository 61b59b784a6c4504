"""Groups: what of a text names the group of an example, for splits that never part a group."""

import re
from collections.abc import Sequence

from tasks.prepare.wording import shown


def group_of(text: str, pattern: str | None) -> str | None:
    """Returns what the pattern's first group matches in a text, all of it without a pattern; None: nothing."""
    if pattern is None:
        return text
    match = re.search(pattern, text)
    return None if match is None else match[1]


def groups_of(texts: Sequence[str], pattern: str | None) -> tuple[list[str], dict[int, str]]:
    """Returns the group of each of n texts, and what is wrong with those that have none, by their place."""
    groups = [group_of(text, pattern) for text in texts]
    wrong = [place for place, group in enumerate(groups) if group is None]
    return [group or "" for group in groups], {
        place: f"is {shown(texts[place])}, without {pattern!r}" for place in wrong
    }
