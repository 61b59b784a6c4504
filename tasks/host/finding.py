"""Finding: one thing that the doctor looked at."""

from typing import Literal

from tasks.files import Record


class Finding(Record):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warning", "problem"]
    """A run may disappoint with a warning, and cannot end well with a problem."""
    found: str
    fix: str = ""
    """What to do about it; empty if nothing has to be done."""
