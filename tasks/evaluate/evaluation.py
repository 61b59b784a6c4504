"""The evaluation: every example of a split through a checkpoint's model, once; runs in a worker process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks import events
from tasks.errors import TrainingError
from tasks.evaluate import plots
from tasks.evaluate.bootstrap import intervals
from tasks.evaluate.facts import Facts
from tasks.evaluate.inputs import pack_inputs
from tasks.evaluate.judged import Judged
from tasks.evaluate.leaks import NUM_NAMED, find_leaks
from tasks.evaluate.model_card import model_card
from tasks.evaluate.page import render_page
from tasks.evaluate.predictions import write_predictions
from tasks.evaluate.report import INPUTS, MODEL_CARD, PAGE, PREDICTIONS, REPORT, WORST_INPUTS, EvalReport
from tasks.evaluate.shown import show
from tasks.evaluate.slices import read_slices, slice_figures
from tasks.evaluate.worst import worst_rows, write_worst
from tasks.feed.columns import check_columns
from tasks.feed.feed import evaluation_feed
from tasks.feed.parse import parse_batch
from tasks.feed.preprocess import Preprocess
from tasks.feed.records import first_records, stored_rows
from tasks.feed.signature import feature_names
from tasks.files import atomic_directory
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.runs import Run, find_run
from tasks.train.checkpoint import POSITION, Position
from tasks.train.head import Head, make_head
from tasks.train.inference import Predictions, Predictor
from tasks.train.restored import restored_model
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy

NUM_INPUT_EXAMPLES = 4  # kept beside the predictions, to show what an input looks like


def evaluate(workspace: str, run_id: str, shards: dict[str, Any], checkpoint: str) -> dict[str, Any]:
    """Returns the EvalReport of a checkpoint on `config.evaluate.split`, as JSON, after writing report/ of the run.

    Raises ConfigError if evaluate.slices names what is not stored, DataError if the checkpoint is damaged,
    TrainingError if it is another model's or its outputs are not finite.
    """
    progress("start")
    run, found = find_run(Path(workspace), run_id), Shards.model_validate(shards)
    config, manifest, judged_by = run.config.evaluate, found.manifest(), Path(checkpoint)
    stored = found.directory, manifest, config.split
    check_columns(manifest, config.slices)
    head = make_head(run.config, manifest)
    judged = _judge(head, _predict(run, found.directory, manifest, judged_by))
    progress("report")
    inputs = stored_rows(*stored, feature_names(manifest), worst_rows(judged, config.num_worst).tolist())
    leaked = find_leaks(*stored) if config.check_leaks and config.split != "train" else None
    slices = read_slices(*stored, config.slices, judged.targets)
    bounds = intervals(manifest.target_kind, judged, num_resamples=config.num_resamples, seed=run.config.train.seed)

    progress("report")
    shown = show(run.config, manifest, judged)
    with atomic_directory(run.report) as incomplete:
        report = EvalReport(
            checkpoint=judged_by,
            split=config.split,
            num_examples=len(judged.ids),
            settings=config,
            figures=head.figures(judged.targets, judged.outputs),
            intervals=bounds,
            headline=head.metric,
            classes=shown.classes,
            numbers=shown.numbers,
            slices=slice_figures(
                slices,
                lambda rows: head.figures(judged.targets[rows], judged.outputs[rows]),
                min_examples=config.min_slice_examples,
            ),
            calibration=shown.calibration,
            worst=write_worst(incomplete, manifest, judged, inputs),
            num_leaked=None if leaked is None else len(leaked),
            leaked=() if leaked is None else tuple(leaked[:NUM_NAMED].tolist()),
            directory=run.report,
        )
        write_predictions(incomplete / PREDICTIONS, judged, manifest.label_map)
        np.savez(incomplete / INPUTS, allow_pickle=False, **pack_inputs(_inputs(run, found.directory, manifest)))
        best_step = Position.read(judged_by / POSITION).step
        curves = plots.learning_curves(events.history(run.events), metric=head.metric, best_step=best_step)
        for name, figure in {**shown.plots, "learning_curves": curves}.items():
            progress("report")
            figure.savefig(incomplete / f"{name}.png")
        report.write(incomplete / REPORT)
        _write_for_people(incomplete, Facts.of(run, manifest, report))
    return report.model_dump(mode="json")


def _judge(head: Head, found: Predictions) -> Judged:
    predictions = head.predictions(found.outputs)
    return Judged(
        ids=found.ids,
        targets=found.targets,
        outputs=found.outputs,
        predictions=predictions,
        decisions=head.decisions(predictions),
        losses=head.losses(found.targets, found.outputs),
    )


def _predict(run: Run, directory: Path, manifest: ShardManifest, checkpoint: Path) -> Predictions:
    config = run.config
    strategy = open_strategy(config.distribute)
    with strategy.scope():
        model = restored_model(run, manifest, checkpoint, config.distribute)
    feed = evaluation_feed(
        directory,
        manifest,
        config.evaluate.split,
        config.feed,
        batch_size=config.evaluate.batch_size,
        num_replicas=strategy.num_replicas_in_sync,
    )
    predictions = Predictor(strategy, model, feed, target=manifest.target, id=manifest.id).predict()
    assert len(np.unique(predictions.ids)) == len(predictions.ids) == feed.num_examples, "each example counts once"
    finite = np.isfinite(predictions.outputs).all(axis=1)
    if not finite.all():
        raise TrainingError(
            f"{checkpoint}: outputs of {np.count_nonzero(~finite)} of {len(finite)} {config.evaluate.split} examples "
            f"are not finite, the first is example {predictions.ids[finite.argmin()]}; train again with a lower "
            "train.optimizer.learning_rate or train.clip.limit=1.0"
        )
    return predictions


def _write_for_people(directory: Path, facts: Facts) -> None:
    """Writes the page, with the images that lie in the report's directory, and the model card."""
    images = {
        str(file.relative_to(directory)): file.read_bytes()
        for file in directory.rglob("*")
        if file.suffix in {".png", ".jpg"}
    }
    kept = directory / WORST_INPUTS
    inputs = json.loads(kept.read_bytes()) if kept.exists() else {}
    (directory / PAGE).write_bytes(render_page(facts, images, inputs).encode())
    (directory / MODEL_CARD).write_bytes(model_card(facts).encode())


def _inputs(run: Run, directory: Path, manifest: ShardManifest) -> dict[str, NDArray[Any]]:
    """Returns {feature: [n, *stored_shape]} of the split's first examples, as the exported model takes them."""
    records = first_records(directory, manifest, run.config.evaluate.split, count=NUM_INPUT_EXAMPLES)
    parsed = parse_batch(records, manifest.features, Preprocess(manifest, run.config.feed).names)
    return {name: value.numpy() for name, value in parsed.items()}
