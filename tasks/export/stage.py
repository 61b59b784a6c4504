"""The export stage: a model that is there and whole, or workers that write one and prove it."""

import logging
import shutil
from pathlib import Path

from tasks.errors import DataError
from tasks.evaluate.report import EvalReport
from tasks.export.manifest import (
    EXPORT,
    LATENCY_BATCH_SIZES,
    SERIALIZED,
    SERVING_DEFAULT,
    TENSORS,
    ExportManifest,
    digest_model,
)
from tasks.files import atomic_directory, is_whole
from tasks.formats import ExportConfig, check_formats
from tasks.prepare.manifest import Shards
from tasks.runs import Run
from tasks.train.result import TrainResult
from tasks.workers.restarts import call_for_run

logger = logging.getLogger("millstream")


def export(run: Run, shards: Shards, trained: TrainResult, report: EvalReport) -> ExportManifest:
    """Returns the run's best checkpoint as a SavedModel in `run.model`, a folder of its own, and the other formats of
    `export.formats` beside it.

    It is made unless it is there, whole and what the config wants. Raises ExportError, and leaves no directory, if one
    of them does not compute what the report says of the trained model or cannot be written; DataError if the report is
    of another checkpoint or the checkpoint is damaged; ConfigError if a format needs what is not installed.
    """
    check_formats(run.config.export)
    if report.checkpoint != trained.best_checkpoint:
        raise DataError(
            f"{report.directory}: is the report of {report.checkpoint}, not of the best checkpoint "
            f"{trained.best_checkpoint}; run `millstream evaluate` first"
        )
    directory = run.model
    manifest = _existing(directory, run.config.export)
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


def _existing(directory: Path, config: ExportConfig) -> ExportManifest | None:
    if not directory.exists() or not is_whole(directory):
        return None
    manifest = ExportManifest.read(directory / EXPORT)
    wanted = set(config.formats), config.warmup_requests
    return manifest if (set(manifest.formats), manifest.num_warmup_requests) == wanted else None


def _export(run: Run, shards: Shards, trained: TrainResult, incomplete: Path, directory: Path) -> ExportManifest:
    """Writes the model to `incomplete`, proves it there, and returns the manifest that it has in `directory`."""
    common = {"shards": shards.model_dump(mode="json"), "directory": str(incomplete)}
    written = call_for_run(
        run,
        "export",
        "tasks.export.savedmodel:write",
        {**common, "checkpoint": str(trained.best_checkpoint)},
        before_restart=lambda: _clear(incomplete),
    )
    parity = call_for_run(run, "export", "tasks.export.parity:compare", common)
    measured = {latency["batch_size"] for latency in parity["latencies"]}
    for batch_size in sorted({*LATENCY_BATCH_SIZES} - measured):
        logger.warning("export: no latency for %d examples at once: the device has no memory for them", batch_size)
    return ExportManifest(
        directory=directory,
        step=int(trained.best_checkpoint.name),
        digest=digest_model(incomplete),
        size_bytes=sum(file.stat().st_size for file in incomplete.rglob("*") if file.is_file()),
        formats=run.config.export.formats,
        signatures=(SERVING_DEFAULT, TENSORS, SERIALIZED),
        num_warmup_requests=run.config.export.warmup_requests,
        latencies=parity["latencies"],
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
