"""Calls: the children of one call, what they have reported, and how long they may be silent."""

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks import errors
from tasks.errors import MillstreamError, WorkerError, WorkerLost
from tasks.workers.child import TOLD_TWICE

# In them one thing is done of which no part tells its progress; in others there is a report for each call or batch.
SLOW_PHASES = frozenset({"start", "compile", "checkpoint", "report", "export", "parity", "register"})
_NOTE = "note"  # a line to show, which says nothing of the phase
HINTS = {"SIGKILL": "often the system's out-of-memory killer"}


@dataclass(frozen=True)
class Limits:
    """How long a child may be silent, and how long it has to end."""

    hang_timeout_seconds: float
    slow_phase_factor: float
    stop_grace_seconds: float

    def silence_seconds(self, phase: str) -> float:
        """Returns the longest silence in a phase, in seconds."""
        return self.hang_timeout_seconds * (self.slow_phase_factor if phase in SLOW_PHASES else 1)


@dataclass
class Call:
    """One call, and what its child has reported."""

    function: str
    log: Path
    number: int = field(default_factory=itertools.count(1).__next__)
    begun: bool = False
    expendable: bool = False
    """Whether the others go on without it."""
    phase: str = "start"
    silent_until: float = 0.0
    """Moment of the monotonic clock at which it counts as hung."""
    memory_bytes: int = 0
    """Resident, as last reported."""
    ended: dict[str, Any] | None = None
    """Exit code and signal of the child, once it is gone."""
    text: str = ""
    """Result or error in JSON, as far as it has come in."""

    def take(self, report: dict[str, Any]) -> None:
        """Adds a report of the server or the child."""
        self.begun = True
        if report.get("phase", _NOTE) != _NOTE:
            self.phase = report["phase"]
        self.memory_bytes = report.get("memory_bytes", self.memory_bytes)
        self.text += report.get("part", "")
        if "exit" in report:
            self.ended = report

    def is_lost(self) -> bool:
        """Returns whether the child, which has ended, neither returned nor said why."""
        assert self.ended is not None
        return self.ended["signal"] is not None or self.ended["exit"] not in (0, 1)

    def lost_a_peer(self) -> bool:
        """Returns whether the child, which has failed, did so because it could not reach another."""
        return self.is_lost() or not self.text or "peer" in json.loads(self.text).get("error", {})

    def epitaph(self) -> str:
        """Returns what became of the child, which has ended and returned nothing."""
        try:
            self.result()
        except MillstreamError as error:
            return str(error)
        raise AssertionError("it returned")

    def result(self) -> dict[str, Any]:
        """Returns what the child returned, or raises what became of it."""
        assert self.ended is not None
        code, name = self.ended["exit"], self.ended["signal"]
        kind = WorkerError if name == "SIGTERM" or code == TOLD_TWICE else WorkerLost
        if name is not None:
            hints = [HINTS[name]] if name in HINTS else []
            if self.memory_bytes:
                hints.append(f"with {self.memory_bytes / 1e6:,.0f} MB in memory when last heard of")
            why = f" ({'; '.join(hints)})" if hints else ""
            raise kind(f"{self.function} was killed by {name}{why}; see {self.log}")
        outcome = json.loads(self.text) if self.text and code in (0, 1) else {}
        if "error" in outcome:
            error = outcome["error"]
            if "mendable" in error:
                raise getattr(errors, error["mendable"])(error["message"])
            kind = WorkerLost if "peer" in error or "device" in error else WorkerError
            raise kind(f"{self.function} failed, its traceback is in {self.log}: {error['message']}")
        if code != 0 or not outcome:
            raise kind(f"{self.function} ended with exit code {code} before it returned; see the end of {self.log}")
        result: dict[str, Any] = outcome["result"]
        return result
