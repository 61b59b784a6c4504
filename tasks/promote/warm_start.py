"""The warm start as the flow process settles it: a run or an alias becomes a file of known digest."""

from pathlib import Path

from tasks.config import Config
from tasks.errors import ConfigError, MillstreamError
from tasks.export.manifest import EXPORT, ExportManifest
from tasks.files import read_receipts
from tasks.promote.registered import DIGEST_TAG, RUN_TAG
from tasks.runs import find_run
from tasks.starting_weights import AliasWeights, FileWeights, RunWeights
from tasks.track.client import answering, default_uri, first_line, is_outage, open_client, without_password
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import find_result


def settle_warm_start(config: Config, workspace: Path) -> Config:
    """Returns the config with the file that `model.warm_start` comes to now; as it is if there is none to settle.

    A run keeps the file that it was begun with: its key has the digest, so that another best checkpoint, or an alias
    that has moved, makes another run. Raises ConfigError if there is no such run or alias, TrackingError if MLflow does
    not answer.
    """
    start = config.model.warm_start
    match start:
        case RunWeights():
            settled = _of_run(start.run, workspace, origin=f"run {start.run}")
        case AliasWeights():
            settled = _of_alias(start.alias, config.tracking.uri or default_uri(workspace), workspace)
        case _:
            return config
    settled = settled.model_copy(update={"exclude": start.exclude})
    return config.model_copy(update={"model": config.model.model_copy(update={"warm_start": settled})})


def _of_run(run_id: str, workspace: Path, *, origin: str) -> FileWeights:
    try:
        run = find_run(workspace, run_id)
        checkpoint = find_result(run).best_checkpoint
        digest = read_receipts(checkpoint)[VARIABLES].sha256
    except MillstreamError as error:
        raise ConfigError(f"model.warm_start: {origin} gives no weights: {error}") from None
    ema = run.config.train.ema
    averages = ema is not None and ema.evaluate  # what was judged and exported
    path = str(checkpoint / VARIABLES)
    return FileWeights(file=path, sha256=digest, averages=averages, origin=f"{origin}, step {int(checkpoint.name)}")


def _of_alias(alias: str, uri: str, workspace: Path) -> FileWeights:
    from mlflow.exceptions import MlflowException

    setting = f"model.warm_start.alias={alias}"
    name, _, of = alias.partition("@")
    with answering(setting, uri):
        try:
            version = open_client(uri).get_model_version_by_alias(name, of)
        except MlflowException as error:
            if is_outage(error):
                raise
            where = without_password(uri)
            raise ConfigError(f"{setting}: the registry at {where} has none ({first_line(error)})") from None
    origin = f"{alias}, version {version.version}"
    if RUN_TAG not in version.tags:
        raise ConfigError(f"model.warm_start: {origin}, was not registered by millstream; name a file of its weights")
    found = _of_run(version.tags[RUN_TAG], workspace, origin=f"{origin}, of run {version.tags[RUN_TAG]}")
    exported = find_run(workspace, version.tags[RUN_TAG]).model / EXPORT
    if not exported.is_file() or ExportManifest.read(exported).digest != version.tags.get(DIGEST_TAG):
        raise ConfigError(
            f"model.warm_start: {origin}, is not what its run {version.tags[RUN_TAG]} has now, which was gone on "
            "with, exported anew or cleaned; name the run, or a file of the weights"
        )
    return found
