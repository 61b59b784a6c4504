"""The champion's worker: the SavedModel of the registry answers the examples that the challenger was judged on.

Whatever shards it was trained on, it gets these, through its own preprocessing.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.special import logit

from tasks.distribution import OneDevice
from tasks.errors import ConfigError, DataError
from tasks.evaluate.predictions import Predicted, read_predictions
from tasks.evaluate.report import PREDICTIONS, EvalReport
from tasks.evaluate.slices import read_slices, slice_figures
from tasks.export.manifest import SERIALIZED, ExportManifest
from tasks.feed.parse import parse_batch
from tasks.feed.records import record_batches
from tasks.feed.signature import stored_shape
from tasks.prepare.manifest import ShardManifest, Shards
from tasks.promote.fetched import fetch_model
from tasks.promote.gate import slice_headlines
from tasks.promote.paired_test import mcnemar, paired_bootstrap
from tasks.promote.record import Champion
from tasks.runs import find_run
from tasks.train.head import Head, make_head
from tasks.workers.child import progress
from tasks.workers.devices import open_strategy

Floats = NDArray[np.float64]

_LEAST = float(np.finfo(np.float32).tiny)  # a SavedModel answers in float32, in which a probability may be 0 or 1
_MOST = 1 - float(np.finfo(np.float32).epsneg)


def judge(
    *, workspace: str, run_id: str, shards: dict[str, Any], report: dict[str, Any], reference: str, uri: str
) -> dict[str, Any]:
    """Returns the Champion, as JSON: the registered model `reference` on the examples of the run's report.

    Classes are matched by name: one that it does not know is wrong for it, as is one that there is no more. Its
    decisions are by the run's evaluate.threshold. Raises what `fetch_model` does, and ConfigError that names the
    feature, the class or the number if the shards do not fit it.
    """
    progress("champion")
    run, found, judged = (
        find_run(Path(workspace), run_id),
        Shards.model_validate(shards),
        EvalReport.model_validate(report),
    )
    manifest, head = found.manifest(), make_head(run.config, found.manifest())
    open_strategy(OneDevice())  # takes GPU memory as needed; its scope is not entered
    challenger = read_predictions(judged.directory / PREDICTIONS)
    with tempfile.TemporaryDirectory(prefix="millstream-champion-") as folder:
        model, exported = fetch_model(reference, uri, Path(folder))
        check_fit(model.uri, exported, manifest)
        answers = _answers(model.uri, exported, found, judged.split, challenger.ids)
    # Both by what a SavedModel answers, so that neither gains by the other's rounding.
    outputs = outputs_of(manifest, aligned(exported.label_map, manifest, answers))
    other = outputs_of(manifest, challenger.predictions)
    slices = read_slices(found.directory, manifest, judged.split, judged.settings.slices, challenger.targets)
    told = slice_figures(
        slices,
        lambda rows: head.figures(challenger.targets[rows], outputs[rows]),
        min_examples=judged.settings.min_slice_examples,
    )
    if manifest.target_kind in ("multiclass", "binary"):
        paired = mcnemar(_is_right(head, challenger, other), _is_right(head, challenger, outputs))
    else:
        paired = paired_bootstrap(head.losses(challenger.targets, other), head.losses(challenger.targets, outputs))
    return Champion(
        version=model.version,
        figures=head.figures(challenger.targets, outputs),
        slices=slice_headlines(judged.model_copy(update={"slices": told})),
        p_value=paired.p_value,
        test=paired.words,
    ).model_dump(mode="json")


def check_fit(where: str, exported: ExportManifest, manifest: ShardManifest) -> None:
    """Raises ConfigError if a model takes what is not in the shards, or answers what is not learned there."""
    mend = "promote another one by hand with `millstream promote`, or give it the data it knows"
    for input in exported.inputs.values():
        feature = manifest.features.get(input.feature)
        has = None if feature is None else (feature.kind, stored_shape(feature), feature.dtype)
        if has != (input.kind, input.shape, input.dtype):
            takes = f"{input.kind} {input.dtype} {list(input.shape)}"
            stored = "not there" if has is None else f"{has[0]} {has[2]} {list(has[1])}"
            raise ConfigError(
                f"{where}: takes {input.feature} as {takes}, which in the shards is {stored}, so that it cannot be "
                f"compared; {mend}"
            )
    kind, known, due = _answered(exported), set(exported.label_map), set(manifest.label_map)
    learned = {"multiclass": "one class", "binary": "one class", "multi_label": "any classes"}
    if kind != learned.get(manifest.target_kind, "numbers"):
        raise ConfigError(
            f"{where}: answers {kind}, which cannot be compared with data.target.kind={manifest.target_kind}; {mend}"
        )
    # Two classes have one logit, and numbers are no shares of a whole: none can be left out.
    if manifest.target_kind in ("binary", "regression") and (lacks := sorted(due ^ known)):
        raise ConfigError(
            f"{where}: answers {', '.join(exported.label_map)}, where the shards have {', '.join(manifest.label_map)}, "
            f"so that {', '.join(lacks)} cannot be compared; {mend}"
        )


def aligned(label_map: tuple[str, ...], manifest: ShardManifest, answers: Floats) -> Floats:
    """Returns [n, num_classes] answers in the order of the shards' label map, by the names in `label_map`; 0 for
    classes that are not in it.

    Of one class of several, [n, num_classes + others]: what it says of classes that there are no more, all wrong.
    """
    place_of = {name: place for place, name in enumerate(label_map)}
    none = np.zeros(len(answers))
    columns = [answers[:, place_of[name]] if name in place_of else none for name in manifest.label_map]
    if manifest.target_kind == "multiclass":
        columns += [answers[:, place] for name, place in place_of.items() if name not in manifest.label_map]
    return np.stack(columns, axis=1)


def outputs_of(manifest: ShardManifest, answers: Floats) -> Floats:
    """Returns what a head takes for the outputs of a model that answers so: logits, or numbers in deviations."""
    if manifest.target_kind == "regression":
        mean, std = (np.array(each) for each in manifest.target_scale)
        return np.asarray((answers - mean) / std)
    probabilities = np.clip(answers.astype(np.float32).astype(np.float64), _LEAST, _MOST)
    if manifest.target_kind == "multiclass":
        return np.log(probabilities)
    return np.asarray(logit(probabilities[:, 1:] if manifest.target_kind == "binary" else probabilities))


def _answered(exported: ExportManifest) -> str:
    if "class" not in exported.outputs:
        return "numbers"
    return "any classes" if exported.outputs["class"].shape else "one class"


def _answers(where: str, exported: ExportManifest, shards: Shards, split: str, ids: NDArray[np.int64]) -> Floats:
    """Returns what the model answers, [n, len(exported.label_map)], in the order of `ids`."""
    main, manifest = next(iter(exported.outputs)), shards.manifest()
    loaded = tf.saved_model.load(str(exported.directory))  # holds the variables as long as the signature is used
    signature = loaded.signatures[SERIALIZED]
    rows: dict[int, Floats] = {}
    for records in record_batches(shards.directory, manifest, split):
        try:
            found = signature(examples=records)[main].numpy()
        except tf.errors.InvalidArgumentError as error:
            raise DataError(
                f"{where}: does not take the examples of the shards ({error.message.splitlines()[0]})"
            ) from None
        rows |= zip(_ids(records, manifest), found.astype(np.float64), strict=True)
        progress("champion", num_examples=len(rows))
    return np.stack([rows[id] for id in ids.tolist()])


def _ids(records: tf.Tensor, manifest: ShardManifest) -> Iterator[int]:
    yield from parse_batch(records, manifest.features, (manifest.id,))[manifest.id].numpy().tolist()


def _is_right(head: Head, judged: Predicted, outputs: Floats) -> NDArray[np.bool_]:
    return np.asarray(head.decisions(head.predictions(outputs)) == judged.targets)
