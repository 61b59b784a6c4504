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

from tasks.errors import ConfigError, DataError, MillstreamError, RunError, TrackingError
from tasks.files import lock, write_atomic
from tasks.promote.fetched import fetch_model, open_registry, parse_reference, suggestion
from tasks.promote.record import MAX_REASON, Promotion
from tasks.promote.registered import versions_by_alias
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
from tasks.track.client import answering, default_uri, first_line, is_outage, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION, CHALLENGER, PREVIOUS = "champion", "challenger", "previous"
# Of a model version, for whoever looks at it in the registry.
SERVING_TAG, REPLACED_TAG = "millstream.serving", "millstream.replaced"
_FETCHED = ".fetched-"
_FINISHED_NEXT = "; what was begun is finished by the next command"

logger = logging.getLogger("millstream")


def promote(
    reference: str,
    workspace: Path,
    *,
    reason: str,
    uri: str | None = None,
    judged_against: int | Literal["any"] | None = "any",
) -> Promotion:
    """Returns the change that made NAME, NAME@alias or NAME/version the champion of its name, and the served model.

    The champion before is @previous since. `uri`: of the registry; default: the workspace's. `judged_against`: the
    champion then, None if there was none. Raises what `fetch_model` does, ConfigError if it is the champion
    already, RunError if another change of the name is under way or the champion is another by now, TrackingError if
    MLflow stops answering: then the next command finishes it.
    """
    name, _, _ = parse_reference(reference)

    def is_due(version: int, champion: int | None, finished: Promotion | None) -> bool:
        if finished is not None and finished.version == version:
            return False
        if champion == version and served_version(serving_directory(workspace, name)) == version:
            raise ConfigError(f"{name}/{version}: is the champion already, and what is served")
        if judged_against not in ("any", champion, version):
            then = "none" if judged_against is None else f"version {judged_against}"
            raise RunError(
                f"{name}/{version}: the champion is version {champion} by now, where it was judged against {then}; "
                "give the same command again, which judges it anew"
            )
        return True

    return _carry_out("promote", reference, workspace, is_due, reason=reason, uri=uri)


def rollback(name: str, workspace: Path, *, reason: str) -> Promotion:
    """Returns the change that made the champion before the last one the champion again; raises as `promote` does.

    What is rolled back is @previous since, so that the next rollback undoes this one.
    """

    def is_due(version: int, champion: int | None, finished: Promotion | None) -> bool:
        if finished is not None and finished.kind == "rollback":
            return False
        if champion == version:
            raise ConfigError(
                f"{name}: version {version} is @{PREVIOUS} and the champion, so that there is none to go back to; name "
                "one with `millstream promote`"
            )
        return True

    return _carry_out("rollback", f"{name}@{PREVIOUS}", workspace, is_due, reason=reason)


def _carry_out(
    kind: Literal["promote", "rollback"],
    reference: str,
    workspace: Path,
    is_due: Callable[[int, int | None, Promotion | None], bool],
    *,
    reason: str,
    uri: str | None = None,
) -> Promotion:
    """Returns the change to the version that is meant, carried out.

    `is_due` is given that version, the champion, and what an earlier command had begun, which is finished by now. It
    returns whether there is more to do, not if that was this very command, and raises if it cannot be.
    """
    name, _, _ = parse_reference(reference)
    uri = uri or default_uri(workspace)
    with answering(reference, uri, then=_FINISHED_NEXT):
        client = open_registry(reference, uri)
        if not client.search_registered_models(f"name = '{name}'"):
            raise ConfigError(f"{name}: {without_password(uri)} has no such model; {suggestion(client, name)}")
        with _alone(serving_directory(workspace, name)) as directory:
            finished = _finish(client, directory, uri)
            with _fetched(reference, uri, directory) as (version, digest, model):
                champion = versions_by_alias(client, name).get(CHAMPION)
                if not is_due(version, champion, finished):
                    assert finished is not None
                    return finished
                change = Promotion(
                    kind=kind,
                    name=name,
                    version=version,
                    # An alias may have been set by hand, to what was never served.
                    replaced=None if champion == version else champion,
                    digest=digest,
                    number=next_number(directory),
                    by=f"{getpass.getuser()}@{socket.gethostname()}",
                    at=datetime.now(UTC).isoformat(timespec="seconds"),
                    reason=reason[:MAX_REASON],
                )
                with _writing(directory):
                    change.write(directory / JOURNAL)
                _apply(client, directory, change, model)
    return change


def _finish(client: "MlflowClient", directory: Path, uri: str) -> Promotion | None:
    """Finishes what an earlier command began and returns it, None if there is nothing to finish."""
    from mlflow.exceptions import MlflowException

    journal = directory / JOURNAL
    if not journal.exists():
        return None
    change = Promotion.read(journal)
    logger.warning(
        "the change of %s to version %d, begun at %s, is finished first", change.name, change.version, change.at
    )
    try:
        with _fetched(f"{change.name}/{change.version}", uri, directory) as (_, digest, model):
            if digest != change.digest:
                raise DataError(f"the model of {without_password(uri)} is another, by its sha256")
            _apply(client, directory, change, model)
    except (MillstreamError, MlflowException) as error:
        if isinstance(error, TrackingError) or is_outage(error):
            raise
        raise DataError(
            f"{journal}: the change to {change.name}/{change.version}, begun at {change.at}, cannot be finished "
            f"({first_line(error)}); if it is wanted no more, remove that file, and promote a version anew"
        ) from error
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
    if versions_by_alias(client, name).get(CHALLENGER) == change.version:
        client.delete_registered_model_alias(name, CHALLENGER)
    with _writing(directory):
        publish(model, directory, change.number)
    client.set_model_version_tag(name, version, SERVING_TAG, f"{change.number} ({change.kind}): {_signed(change)}")
    done = history(directory)
    with _writing(directory):
        if change not in done:
            lines = "".join(f"{each.model_dump_json()}\n" for each in [*done, change])
            write_atomic(directory / HISTORY, lines.encode())
        (directory / JOURNAL).unlink()
        retire(directory)


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Raises DataError for what the block raises because the disk does not take it: MLflow has no part in that."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{directory}: cannot be written ({error}); mend that and give the same command again: what was begun is "
            "finished then"
        ) from error


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


def _signed(change: Promotion) -> str:
    return f"{change.at}, {change.by}, {change.reason}"
