"""Clean: what of a workspace nothing needs any more, planned, shown and removed."""

import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from tasks.errors import ConfigError, TrackingError
from tasks.files import COMPLETED, Record, lock
from tasks.host.inventory import Inventory, Item, RunItem, cache_lock, raw_lock, run_locks, shards_lock, take_inventory
from tasks.promote.registered import Registered, registered_runs
from tasks.runs import CHOOSE_LOCK, STATE
from tasks.track.client import default_uri

Kind = Literal["run", "model", "checkpoint", "shards", "cache", "raw", "leftover"]
_IsOld = Callable[[Item], bool]
_UNITS = {"minutes": 60, "hours": 3600, "days": 86400, "weeks": 604800}
logger = logging.getLogger("millstream")


class Rules(Record):
    """What the user wants to keep beyond what is needed."""

    keep_runs: int | None = None
    """The newest finished runs of each name that stay; None with `older_than`: by age alone; both None: all stay."""
    older_than: timedelta | None = None
    """What is younger stays, of whatever kind."""


class Removal(Record):
    """One file or directory that is to go."""

    kind: Kind
    path: Path
    size_bytes: int
    reason: str
    locks: tuple[Path, ...] = ()
    """Held while it is removed; if a process holds one by then, it stays."""


def age(text: str) -> timedelta:
    """Returns a length of time such as '30 days'; raises ConfigError with the rule."""
    if not re.fullmatch(rf"[0-9]+ ({'|'.join(_UNITS)})", text):
        raise ConfigError(f"--older-than {text!r}: must be a whole number and one of {', '.join(_UNITS)}: '30 days'")
    number, unit = text.split(" ")
    return timedelta(seconds=int(number) * _UNITS[unit])


def plan(workspace: Path, rules: Rules) -> list[Removal]:
    """Returns what is to be removed from a workspace now; removes nothing.

    If the MLflow registry does not answer, a warning says that all models stay, and the runs that have one.
    """
    if not workspace.is_dir():
        return []
    found = take_inventory(workspace)
    return plan_clean(found, _ask_registry(found, rules), rules, datetime.now(UTC))


def plan_clean(found: Inventory, registered: Registered | None, rules: Rules, now: datetime) -> list[Removal]:
    """Returns what is to be removed, given what lies in the workspace and what the registry names.

    It stays what is younger than the rules say, what a process holds the lock of, and

    - every run that is not finished, for it can be gone on with; the newest `keep_runs` finished ones of each name; one
      that an alias names; with all of them their best checkpoint, shards, raw data and model;
    - every model that has a version in the registry, whatever becomes of its run.

    `registered` is None if the registry did not answer: then all models stay and the runs that have one.
    """

    def old(item: Item) -> bool:
        return _is_old(item.modified, rules, now)

    gone = _gone(found, registered, rules, now)
    kept = [run for run in found.runs if run.state.id not in gone]
    removals = [
        *_of_runs(found, gone, old),
        *_of_models(found, kept, registered, rules, old),
        *_of_shards(found, kept, old),
        *_of_raw(found, kept, old),
    ]
    return sorted(removals, key=lambda removal: removal.path)


def carry_out(workspace: Path, rules: Rules, shown: Sequence[Removal]) -> list[Removal]:
    """Removes what was shown and may still be removed, and returns that.

    No run is begun meanwhile, and what a process takes the lock of stays. What says that a directory is complete goes
    first, so that nobody trusts half of one.
    """
    paths = {removal.path for removal in shown}
    registered = _ask_registry(take_inventory(workspace), rules)
    with lock(workspace / "runs" / CHOOSE_LOCK):
        now_planned = plan_clean(take_inventory(workspace), registered, rules, datetime.now(UTC))
        return [removal for removal in now_planned if removal.path in paths and _remove(removal)]


def _ask_registry(found: Inventory, rules: Rules) -> Registered | None:
    """Returns what the registries of the runs name; None, and a warning, if one of them does not answer."""
    nothing = Registered(versions=frozenset(), aliased=frozenset())
    if rules == Rules() or not found.models:  # no model is to go
        return nothing
    uris = {run.tracking_uri for run in found.runs if run.tracking_uri is not None} | {default_uri(found.workspace)}
    try:
        answers = [registered_runs(uri) for uri in sorted(uris)]
    except TrackingError as error:
        logger.warning("clean: %s; all models stay, and the runs that have one", error)
        return None
    return Registered(
        versions=nothing.versions.union(*(answer.versions for answer in answers)),
        aliased=nothing.aliased.union(*(answer.aliased for answer in answers)),
    )


def _gone(found: Inventory, registered: Registered | None, rules: Rules, now: datetime) -> set[str]:
    """Returns the ids of the runs that are to go."""
    if rules.keep_runs is None and rules.older_than is None:
        return set()
    have_model = {model.run_id for model in found.models}
    place: Counter[str] = Counter()  # of the next run among the finished ones of its name, newest first
    gone = set()
    for run in found.runs:
        if run.state.status != "finished":
            continue
        place[run.state.name] += 1
        if registered is None or run.tracking_uri is None:
            needed = run.state.id in have_model
        else:
            # Which registry a run has of its own is said by its config alone, so it stays for as long as its model.
            of_its_own = run.tracking_uri != default_uri(found.workspace)
            needed = run.state.id in (registered.versions if of_its_own else registered.aliased)
        too_young = not _is_old(datetime.fromisoformat(run.state.created).timestamp(), rules, now)
        if not (run.busy or needed or too_young or place[run.state.name] <= (rules.keep_runs or 0)):
            gone.add(run.state.id)
    return gone


def _of_runs(found: Inventory, gone: set[str], old: _IsOld) -> Iterator[Removal]:
    for run in found.runs:
        if run.state.id in gone:
            yield _removal("run", run, "finished, and beyond what the rules keep", *run_locks(run.path))
            continue
        if run.busy:
            continue
        if run.state.status == "finished" and run.best_checkpoint is not None:
            for checkpoint in run.checkpoints:
                if checkpoint.path.name != run.best_checkpoint and old(checkpoint):
                    yield _removal("checkpoint", checkpoint, "not the best of a finished run", *run_locks(run.path))
        for leftover in filter(old, run.leftovers):
            yield _removal("leftover", leftover, "never written to its end", *run_locks(run.path))
    for stray in filter(old, found.strays):
        yield _removal("leftover", stray, "has no state.json: half removed, or killed as it began")


def _of_models(
    found: Inventory, kept: Sequence[RunItem], registered: Registered | None, rules: Rules, old: _IsOld
) -> Iterator[Removal]:
    runs = {run.state.id: run for run in kept}
    for model in found.models:
        run = runs.get(model.run_id)
        locks = run_locks(found.workspace / "runs" / model.run_id) if run else ()
        if (run is not None and run.busy) or not old(model):
            continue
        if model.leftover:
            yield _removal("leftover", model, "never written to its end", *locks)
        elif run is None and rules != Rules() and registered is not None and model.run_id not in registered.versions:
            yield _removal("model", model, "no version of the registry is of it, and its run is gone or goes", *locks)


def _of_shards(found: Inventory, kept: Sequence[RunItem], old: _IsOld) -> Iterator[Removal]:
    used = {run.state.data_digest for run in kept}
    unfinished = {run.state.data_digest for run in kept if run.state.status != "finished" or run.busy}
    for shards in found.shards:
        if shards.busy:
            continue
        if shards.digest not in used:
            if old(shards):
                yield _removal("shards", shards, "no run that stays uses them", shards_lock(shards.path))
            continue
        if shards.digest not in unfinished:
            for cache in filter(old, shards.caches):
                yield _removal(
                    "cache", cache, "no unfinished run reads it; made again if need be", cache_lock(cache.path)
                )
        if shards.source_digest is not None or shards.digest not in unfinished:  # else it is gone on with from them
            for leftover in filter(old, shards.leftovers):
                yield _removal("leftover", leftover, "never written to its end", shards_lock(shards.path))


def _of_raw(found: Inventory, kept: Sequence[RunItem], old: _IsOld) -> Iterator[Removal]:
    source_of = {shards.digest: shards.source_digest for shards in found.shards}
    sources = {source_of.get(run.state.data_digest) for run in kept}
    # Of what a run will make its shards that has not made them yet, nobody can say.
    open_source = any(
        source_of.get(run.state.data_digest) is None for run in kept if run.busy or run.state.status != "finished"
    )
    for raw in filter(old, found.raw):
        if raw.busy:
            continue
        if raw.leftover:
            yield _removal("leftover", raw, "a download that was not finished", raw_lock(raw.path))
        elif not (open_source or raw.digests & sources):
            yield _removal("raw", raw, "no shards that stay were made from it", raw_lock(raw.path))


def _is_old(seconds: float, rules: Rules, now: datetime) -> bool:
    return rules.older_than is None or seconds <= (now - rules.older_than).timestamp()


def _removal(kind: Kind, item: Item, reason: str, *locks: Path) -> Removal:
    return Removal(kind=kind, path=item.path, size_bytes=item.size_bytes, reason=reason, locks=locks)


def _remove(removal: Removal) -> bool:
    """Removes a path, its locks held; returns False, and warns, if a process holds one of them."""
    path = removal.path
    with ExitStack() as held:
        for each in removal.locks:
            try:
                held.enter_context(lock(each, timeout_seconds=0))
            except TimeoutError:
                logger.warning("clean: %s: a process has begun to use it; it stays", path)
                return False
        if path.is_symlink() or path.is_file():
            path.unlink()
            return True
        for marker in [path / STATE, *sorted(path.rglob(COMPLETED))]:
            marker.unlink(missing_ok=True)
        shutil.rmtree(path)
    return True
