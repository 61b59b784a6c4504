"""The export stage: a model that is there and whole, or workers that write one and prove it."""

import logging
import shutil
from pathlib import Path

from tasks.errors import DataError
from tasks.evaluate.report import EvalReport
from tasks.export.manifest import EXPORT, SERIALIZED, SERVING_DEFAULT, ExportManifest, digest_model
from tasks.files import atomic_directory, is_whole
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.result import TrainResult
from tasks.workers.restarts import call_for_run

logger = logging.getLogger("millstream")


def export(run: Run, shards: Shards, trained: TrainResult, report: EvalReport) -> ExportManifest:
    """Returns the run's best checkpoint as a SavedModel in `run.model`, a folder of its own.

    It is made unless it is there and whole. Raises ExportError, and leaves no directory, if it does not compute what
    the report says of the trained model; DataError if the report is of another checkpoint or the checkpoint is damaged.
    """
    if report.checkpoint != trained.best_checkpoint:
        raise DataError(
            f"{report.directory}: is the report of {report.checkpoint}, not of the best checkpoint "
            f"{trained.best_checkpoint}; run `millstream evaluate` first"
        )
    directory = run.model
    manifest = _existing(directory)
    if manifest is None:
        with atomic_directory(directory) as incomplete:
            manifest = _export(run, shards, trained, incomplete, directory)
            manifest.write(incomplete / EXPORT)
    logger.info(
        "export: %s, within %.1e of the trained model on %d examples",
        directory,
        manifest.largest_difference,
        manifest.num_parity_examples,
    )
    return manifest


def _existing(directory: Path) -> ExportManifest | None:
    if not directory.exists() or not is_whole(directory):
        return None
    return ExportManifest.read(directory / EXPORT)


def _export(run: Run, shards: Shards, trained: TrainResult, incomplete: Path, directory: Path) -> ExportManifest:
    """Writes the SavedModel to `incomplete`, proves it there, and returns the manifest that it has in `directory`."""
    common = {"shards": shards.model_dump(mode="json"), "directory": str(incomplete)}
    written = call_for_run(
        run,
        "export",
        "tasks.export.savedmodel:write",
        {**common, "checkpoint": str(trained.best_checkpoint)},
        before_restart=lambda: _clear(incomplete),
    )
    parity = call_for_run(run, "export", "tasks.export.parity:compare", common)
    return ExportManifest(
        directory=directory,
        digest=digest_model(incomplete),
        size_bytes=sum(file.stat().st_size for file in incomplete.rglob("*") if file.is_file()),
        signatures=(SERVING_DEFAULT, SERIALIZED),
        num_parity_examples=parity["num_examples"],
        largest_difference=parity["largest_difference"],
        label_map=shards.manifest().label_map,
        inputs=written["inputs"],
        outputs=written["outputs"],
    )


def _clear(directory: Path) -> None:
    """Empties a directory: every file in it would become a part of the model."""
    shutil.rmtree(directory)
    directory.mkdir()
