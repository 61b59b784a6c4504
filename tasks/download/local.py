"""Local files: a source of the user's own, which stays where it lies and is never written to."""

from pathlib import Path

from tasks.download.archive import archive_kind
from tasks.download.fingerprint import Fingerprint, fingerprint
from tasks.download.listing import log_ignored
from tasks.download.place import locate
from tasks.download.record import RawData
from tasks.errors import ConfigError, DataError
from tasks.sources import Located


def local_digest(source: Located, workspace: Path) -> str:
    """Returns `RawData.digest` of the files; raises as `find_local`."""
    return _fingerprint(source, workspace).digest


def find_local(source: Located, workspace: Path) -> RawData:
    """Returns the files where they lie; reads those that changed since the last time.

    Raises DataError if they are not there, cannot be read or have another sha256 than the config says, ConfigError if
    the path is an archive or a folder that the workspace writes to, or if a sha256 is given for several files.
    """
    found = _fingerprint(source, workspace)
    log_ignored(found.listing)
    return RawData(
        directory=found.directory,
        pattern=found.pattern,
        fetched=False,
        digest=found.digest,
        num_files=len(found.sha256),
        size_bytes=found.size_bytes,
        reused=True,
    )


def _fingerprint(source: Located, workspace: Path) -> Fingerprint:
    place = locate(source.path)
    if archive_kind(place.pattern or "") in {"zip", "tar"}:
        raise ConfigError(
            f"data.source.path={source.path}: is an archive; write file://{place.directory / str(place.pattern)} "
            "to have it unpacked into the workspace"
        )
    if place.pattern is None and _meet(place.directory.resolve(), workspace.resolve()):
        raise ConfigError(
            f"data.source.path={source.path}: is a folder that the workspace {workspace} writes to, so that no two "
            "commands would find the same files there; give a folder of the data alone, or set MILLSTREAM_WORKSPACE to "
            "another"
        )
    found = fingerprint(place.directory, place.pattern, workspace)
    if source.sha256 is not None:
        if len(found.sha256) != 1:
            raise ConfigError(
                f"data.source.sha256: is of one file, but {source.path} is {len(found.sha256)}; leave it out"
            )
        ((file, sha256),) = found.sha256.items()
        if sha256 != source.sha256:
            raise DataError(
                f"{place.directory / file}: has sha256 {sha256}, not {source.sha256} as data.source.sha256 says; "
                "correct one of them"
            )
    return found


def _meet(directory: Path, workspace: Path) -> bool:
    """Returns whether a source's folder holds the workspace, or lies where shards are written."""
    return workspace.is_relative_to(directory) or directory.is_relative_to(workspace / "data")
