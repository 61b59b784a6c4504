"""Generations: which shards those of a source's new files are appended to, and the name that all get together."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tasks.config import DataConfig
from tasks.download.fingerprint import Fingerprint, fingerprint
from tasks.download.place import locate
from tasks.errors import DataError
from tasks.files import digest_json, is_completed
from tasks.prepare.base import Base
from tasks.prepare.directory import VERSION
from tasks.sources import Located

FORMAT_VERSION = 4  # to be raised by whoever changes the bytes that the same config and source give

logger = logging.getLogger("millstream")


class Earlier(NamedTuple):
    """The generations before that of a source's new files."""

    sources: tuple[str, ...]
    """The digest of the source at each, the oldest first; none if all of it is written anew."""
    why_anew: str | None = None
    """Why there are none, though there are shards of the same config."""


def data_digest(name: str, config: DataConfig, source_digest: str, earlier: Sequence[str] = ()) -> str:
    """Returns 16 hex digits that name the shards of a config and a source: equal digests stand for equal bytes.

    `earlier` are the digests of the source at the generations before, the oldest first: what came when decides the
    bytes too, so that the same files have the same name wherever they came in the same order.
    """
    content = {"name": name, "data": config.identity(), "source": source_digest, "format": FORMAT_VERSION}
    return digest_json(content | ({"earlier": list(earlier)} if earlier else {}))[:16]


def shard_directory(name: str, config: DataConfig, sources: Sequence[str], workspace: Path) -> Path:
    """Returns where the shards of a source lie; `sources` are its digest at each generation, the newest last."""
    return workspace / "data" / data_digest(name, config, sources[-1], sources[:-1]) / name / VERSION


def files_now(config: DataConfig, source_digest: str, workspace: Path) -> Fingerprint:
    """Returns the fingerprint of a source with data.append; raises DataError if it is not of this digest any more."""
    assert isinstance(config.source, Located)  # check_combinations sees to it
    place = locate(config.source.path)
    now = fingerprint(place.directory, place.pattern, workspace)
    if now.digest != source_digest:
        raise DataError(f"{place.directory}: has changed since this command began; give it again")
    return now


def find_earlier(name: str, config: DataConfig, source_digest: str, workspace: Path) -> Earlier:
    """Returns the generations to which a source's new files are appended, by the shards in the workspace.

    Shards of this very source are taken as they are. Else it is appended to those of the same name, config and format
    whose files are all there, unchanged; of several to the most examples, of equally many to the most generations (and
    then to the last by name: the time when they were written decides nothing). Without data.append there are none.
    """
    if not config.append:
        return Earlier(())
    files = files_now(config, source_digest, workspace).sha256
    bases = sorted(_bases(name, config, workspace), key=_preference, reverse=True)
    for base in bases:
        if base.manifest.source_digest == source_digest:
            return Earlier(base.sources[:-1])
    changes = []
    for base in bases:
        change = _first_change(base.files(), files)
        if change is None:
            return Earlier(base.sources)
        changes.append(f"{base.directory} cannot be appended to: {change} since; writing all shards anew")
    return Earlier((), changes[0] if changes else None)


def _bases(name: str, config: DataConfig, workspace: Path) -> list[Base]:
    """Returns the complete directories that the same name, config and format would give the same digest."""
    bases = []
    for directory in (workspace / "data").glob(f"*/{name}/{VERSION}"):
        if not is_completed(directory):
            continue
        try:
            base = Base.read(directory)
        except DataError as error:
            logger.warning("data.append: nothing is appended to %s: %s", directory, error)
            continue
        if base.generations and shard_directory(name, config, base.sources, workspace) == directory:
            bases.append(base)
    return bases


def _preference(base: Base) -> tuple[int, int, str]:
    return base.num_examples, len(base.generations), base.manifest.data_digest


def _first_change(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Returns what has become of the first file that is not as it was then; None: they all are."""
    for file, sha256 in then.items():
        if now.get(file) != sha256:
            return f"{file} has {'changed' if file in now else 'vanished'}"
    return None
