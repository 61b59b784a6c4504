"""Remarks: what a user should know of examples that are used, or left out, counted and with the first names."""

from collections import Counter

from tasks.prepare.wording import NUM_NAMED, count, some


class Remarks:
    """What was found of the files or examples of a source, so far."""

    def __init__(self, noun: str) -> None:
        """`noun`: what is counted, such as file."""
        self._noun = noun
        self._counts: Counter[str] = Counter()
        self._names: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Counts one under `what`, which is read after the noun: 'in no class folder: left out'."""
        self._counts[what] += 1
        if self._counts[what] <= NUM_NAMED:
            self._names.setdefault(what, []).append(name)

    def notes(self) -> tuple[str, ...]:
        """Returns a sentence for each kind: '2 files in no class folder: left out (a, b)'."""
        return tuple(
            f"{count(number, self._noun)} {what} ({some(self._names[what], number)})"
            for what, number in self._counts.items()
        )
