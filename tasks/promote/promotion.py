"""The promotion: which version of a model is the champion, in the registry and in the directory that is served.

A change is written down before it begins and carried out step by step, each of which may be done again: what a crash
leaves half done, the next command finishes. The registry has no lock of its own; one on the serving directory lets one
command at a time change a name.
"""

import getpass
import logging
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from tasks.errors import ConfigError, RunError, TrackingError
from tasks.files import lock, write_atomic
from tasks.promote.fetched import fetch_model, open_registry, parse_reference
from tasks.promote.record import Promotion
from tasks.promote.serving_directory import (
    HISTORY,
    JOURNAL,
    history,
    next_number,
    publish,
    retire,
    served_version,
    serving_directory,
)
from tasks.track.client import default_uri, first_line, is_outage, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
# Of a model version, for whoever looks at it in the registry.
SERVING_TAG, REPLACED_TAG = "millstream.serving", "millstream.replaced"
_FETCHED = ".fetched-"

logger = logging.getLogger("millstream")


def promote(
    reference: str, workspace: Path, *, reason: str, uri: str | None = None, over: int | Literal["any"] | None = "any"
) -> Promotion:
    """Returns the change that made NAME, NAME@alias or NAME/version the champion of its name, and the served model.

    The champion before is @previous since. `uri`: of the registry; default: the workspace's. `over`: the champion that
    it was judged against, None if there was none. Raises what `fetch_model` does, ConfigError if it is the champion
    already, RunError if another change of the name is under way or the champion is not that of `over`, TrackingError if
    MLflow stops answering: then the next command finishes it.
    """
    name, _, _ = parse_reference(reference)

    def plan(client: "MlflowClient", version: int) -> Promotion:
        champion = aliased(client, name).get(CHAMPION)
        if champion == version and served_version(serving_directory(workspace, name)) == version:
            raise ConfigError(f"{name}/{version}: is the champion already, and what is served")
        if over not in ("any", champion, version):
            raise RunError(
                f"{name}/{version}: the champion is version {champion} by now, where it was judged against "
                f"{'none' if over is None else f'version {over}'}; give the same command again, which judges it anew"
            )
        # An alias may have been set by hand, to what was never served.
        return _change("promote", name, version, replaced=None if champion == version else champion, reason=reason)

    return _carry_out(reference, name, workspace, plan, uri=uri)


def rollback(name: str, workspace: Path, *, reason: str) -> Promotion:
    """Returns the change that made the champion before the last one the champion again; raises as `promote` does.

    What is rolled back is @previous since, so that the next rollback undoes this one.
    """

    def plan(client: "MlflowClient", version: int) -> Promotion:
        return _change("rollback", name, version, replaced=aliased(client, name).get(CHAMPION), reason=reason)

    reference = f"{name}@{PREVIOUS}"
    parse_reference(reference)
    return _carry_out(reference, name, workspace, plan)


def aliased(client: "MlflowClient", name: str) -> dict[str, int]:
    """Returns the version of each alias of a registered model."""
    return {alias: int(version) for alias, version in client.get_registered_model(name).aliases.items()}


def _carry_out(
    reference: str,
    name: str,
    workspace: Path,
    plan: Callable[["MlflowClient", int], Promotion],
    *,
    uri: str | None = None,
) -> Promotion:
    uri = uri or default_uri(workspace)
    with reached(reference, uri):
        client = open_registry(reference, uri)
        with _alone(serving_directory(workspace, name)) as directory:
            finished = _finish(client, directory, uri)
            with _fetched(reference, uri, directory) as (version, digest, model):
                if finished is not None and finished.version == version:
                    return finished  # the very command that was interrupted, once more
                change = plan(client, version).model_copy(update={"digest": digest, "number": next_number(directory)})
                change.write(directory / JOURNAL)
                _apply(client, directory, change, model)
    return change


def _finish(client: "MlflowClient", directory: Path, uri: str) -> Promotion | None:
    """Finishes what an earlier command began and returns it, None if there is nothing to finish."""
    if not (directory / JOURNAL).exists():
        return None
    change = Promotion.read(directory / JOURNAL)
    logger.warning(
        "the change of %s to version %d, begun at %s, is finished first", change.name, change.version, change.at
    )
    with _fetched(f"{change.name}/{change.version}", uri, directory) as (_, _, model):
        _apply(client, directory, change, model)
    return change


def _apply(client: "MlflowClient", directory: Path, change: Promotion, model: Path) -> None:
    """Carries out a change that is written down; each step may have been done before."""
    name, version = change.name, str(change.version)
    if change.replaced is not None:
        client.set_registered_model_alias(name, PREVIOUS, str(change.replaced))
        client.set_model_version_tag(
            name, str(change.replaced), REPLACED_TAG, f"by version {version} ({change.kind}): {_signed(change)}"
        )
    client.set_registered_model_alias(name, CHAMPION, version)
    if aliased(client, name).get(CHALLENGER) == change.version:
        client.delete_registered_model_alias(name, CHALLENGER)
    publish(model, directory, change.number)
    client.set_model_version_tag(name, version, SERVING_TAG, f"{change.number} ({change.kind}): {_signed(change)}")
    done = history(directory)
    if change not in done:
        lines = "".join(f"{each.model_dump_json()}\n" for each in [*done, change])
        write_atomic(directory / HISTORY, lines.encode())
    (directory / JOURNAL).unlink()
    retire(directory)


@contextmanager
def _fetched(reference: str, uri: str, directory: Path) -> Iterator[tuple[int, str, Path]]:
    """Yields version, digest and SavedModel of a registered model, found to be what was registered."""
    with TemporaryDirectory(prefix=_FETCHED, dir=directory) as folder:
        model, exported = fetch_model(reference, uri, Path(folder))
        yield model.version, model.digest, exported.directory


@contextmanager
def _alone(directory: Path) -> Iterator[Path]:
    """Yields the serving directory of a name, which no other process changes meanwhile."""
    try:
        with lock(directory / ".lock", timeout_seconds=0):
            for left in directory.glob(f"{_FETCHED}*"):  # by a process that was killed
                shutil.rmtree(left)
            yield directory
    except TimeoutError:
        raise RunError(
            f"{directory}: another command is changing what is served; look at `millstream models {directory.name}` "
            "when it is done, and give this one again if it is still wanted"
        ) from None


@contextmanager
def reached(reference: str, uri: str) -> Iterator[None]:
    """Raises TrackingError for what the block raises because MLflow does not answer."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        if not is_outage(error):
            raise
        raise TrackingError(
            f"{reference}: {without_password(uri)} does not answer ({first_line(error)}); what was begun is finished "
            "by the next command"
        ) from error


def _change(
    kind: Literal["promote", "rollback"], name: str, version: int, *, replaced: int | None, reason: str
) -> Promotion:
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Promotion(
        kind=kind, name=name, version=version, replaced=replaced, digest="", number=0, by=by, at=at, reason=reason
    )


def _signed(change: Promotion) -> str:
    return f"{change.at}, {change.by}, {change.reason}"
