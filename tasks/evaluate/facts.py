"""Facts: what the page and the model card tell of an evaluation, in words that both use."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from tasks.config import Config
from tasks.evaluate.report import EvalReport
from tasks.prepare.manifest import ShardManifest
from tasks.prepare.wording import count, some
from tasks.runs import Run
from tasks.target import FIGURES
from tasks.track.client import tracking_uri, without_password
from tasks.track.contents import find_trained
from tasks.train.result import TrainResult

_NAMES = {
    "roc_auc": "ROC AUC",
    "subset_accuracy": "subset accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "mean_average_precision": "mean average precision",
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R²",
}


class Figure(NamedTuple):
    """A figure as it is printed."""

    name: str
    value: str
    interval: str
    """95 %, from and to; empty if there is none."""


@dataclass(frozen=True)
class Facts:
    """An evaluation, and all around it that a reader needs to judge it."""

    run_id: str
    config: Config
    manifest: ShardManifest
    report: EvalReport
    model: Path
    """Where the exported model is, or will be."""
    trained: TrainResult | None
    """None if the run was trained further since."""
    tracking_uri: str
    """Where the registry is; without a password."""

    @classmethod
    def of(cls, run: Run, manifest: ShardManifest, report: EvalReport) -> Self:
        """Returns what the run's directory tells of its evaluation."""
        trained = find_trained(run)
        is_its_own = trained is not None and trained.best_checkpoint.name == report.checkpoint.name
        return cls(
            run_id=run.id,
            config=run.config,
            manifest=manifest,
            report=report,
            model=run.model,
            trained=trained if is_its_own else None,
            tracking_uri=without_password(tracking_uri(run)),
        )

    @property
    def registered_name(self) -> str:
        """The model's name in the registry."""
        return self.config.promote.registered_name or self.config.name

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The headline, then the others in the order of the report."""
        names = dict.fromkeys((self.report.headline, *self.report.figures))
        return tuple(
            Figure(figure_name(name), number(self.report.figures[name]), self._interval(name)) for name in names
        )

    @property
    def subject(self) -> dict[str, str]:
        """What was evaluated."""
        report, model, train, trained = self.report, self.config.model, self.config.train, self.trained
        arguments = ", ".join(f"{name}={value}" for name, value in model.args.items())
        found = {
            "run": self.run_id,
            "checkpoint": f"step {int(report.checkpoint.name):,}",
            "split": f"{report.split}, {count(report.num_examples, 'example')}",
            "target": self.manifest.target_kind,
            "model": f"{model.build}({arguments})",
            "training": f"{train.total}, {train.optimizer.name}, batches of {self.config.feed.global_batch_size:,}",
        }
        if trained is not None:
            found["checkpoint"] += f", the best by {train.best_metric}: {number(trained.best_value)}"
            found["model"] += f", {count(trained.num_parameters, 'parameter')}"
        if self.manifest.target_kind in ("binary", "multi_label"):
            found["target"] += f", a class is there from a probability of {report.settings.threshold:g}"
        if report.num_leaked is not None:
            found["leakage"] = f"{report.num_leaked or 'no'} examples that share their inputs with a training example"
        return found

    @property
    def data(self) -> dict[str, str]:
        """What it learned from and was judged on."""
        manifest, source = self.manifest, self.config.data.source
        targets = "numbers" if manifest.target_kind == "regression" else "classes"
        return {
            "data set": manifest.name,
            "source": f"{source.kind} {getattr(source, 'path', '')}".rstrip(),
            "data digest": manifest.data_digest,
            "source digest": manifest.source_digest,
            "splits": f"{self.config.data.splits.kind}: "
            + ", ".join(f"{name} {split.num_examples:,}" for name, split in manifest.splits.items()),
            "inputs": some([f"{name} ({manifest.features[name].kind})" for name in manifest.inputs]),
            targets: some(manifest.label_map),
            "left out": count(manifest.num_bad, "bad example"),
        }

    @property
    def speed(self) -> dict[str, str]:
        """What the training came to, and what held it up; empty if that is not known."""
        trained = self.trained
        if trained is None:
            return {}
        found = {
            "rate": f"{trained.examples_per_second:,.0f} examples/s on {count(trained.num_replicas, 'replica')}",
            "step": f"p50 {trained.step_seconds_p50 * 1e3:.1f} ms, p95 {trained.step_seconds_p95 * 1e3:.1f} ms",
            "input wait": f"{trained.input_wait_fraction:.1%} of the step time",
            "limited by": trained.input_advice or "its own computation; the input was there in time",
            "devices": some([device.rpartition("device:")[2] for device in trained.devices]),
        }
        if trained.mfu is not None:
            found["utilisation"] = f"{trained.mfu:.1%} of the devices' peak"
        return found

    @property
    def limits(self) -> tuple[str, ...]:
        """What these figures do not say, a sentence each."""
        return (*self._limits_of_split(), *self._limits_of_figures(), *self._limits_of_training())

    def loading(self, version: str = "latest") -> dict[str, str]:
        """Returns the lines that load the model in Python with TensorFlow and with MLflow, and in the shell."""
        name = self.registered_name
        return {
            "tensorflow": "import tensorflow as tf\n\n"
            f'model = tf.saved_model.load("{self.model}")\n'
            'signature = model.signatures["serving_default"]\n'
            "print(signature.structured_input_signature, signature.structured_outputs)",
            "mlflow": f'import mlflow\n\nmlflow.set_tracking_uri("{self.tracking_uri}")\n'
            f'model = mlflow.pyfunc.load_model("models:/{name}/{version}")\nprint(model.predict(model.input_example))',
            "shell": f"millstream serve {name}{'' if version == 'latest' else f'/{version}'}",
        }

    def _interval(self, name: str) -> str:
        found = self.report.intervals.get(name)
        return "" if found is None else f"{number(found.low)} to {number(found.high)}"

    def _limits_of_split(self) -> Iterator[str]:
        report, split = self.report, self.report.split
        if split == "train":
            yield "The split is the one that was learned from: nothing is said of examples that the model has not seen."
        if split == "validation":
            yield "The checkpoint was chosen by this very split, which flatters its figures."
        if report.num_leaked:
            yield (
                f"{report.num_leaked:,} of {report.num_examples:,} {split} examples had, to the byte, the inputs of a "
                "training example: there the model was asked what it had been shown."
            )
        elif report.num_leaked is None and split != "train":
            yield f"Whether {split} examples are training examples too was not checked."
        if self.config.data.splits.kind == "fraction":
            yield "The split was drawn at random: groups or times that training has not seen were not tried."

    def _limits_of_figures(self) -> Iterator[str]:
        report, split = self.report, self.report.split
        if absent := [each.name for each in report.classes if not each.num_examples]:
            yield f"No {split} example is of {some(absent)}: how such examples fare is not known."
        least = report.settings.min_slice_examples
        if few := [each.name for each in report.classes if 0 < each.num_examples < least]:
            yield f"Of these classes there are fewer than {least} {split} examples each: {some(few)}."
        if untold := [figure_name(name) for name in FIGURES[self.manifest.target_kind] if name not in report.figures]:
            yield f"The split has too few kinds of examples to tell {some(untold)}."
        if small := [f"{each.column} {each.value} ({each.num_examples:,})" for each in report.slices if each.is_small]:
            yield f"In small slices chance weighs more than the model: {some(small)}."
        if not report.intervals:
            yield "No intervals were computed: how far chance moves the figures is not said."

    def _limits_of_training(self) -> Iterator[str]:
        trained = self.trained
        if trained is None:
            return
        if not any("GPU" in device for device in trained.devices):
            yield "It was trained and evaluated on CPUs; no GPU has run it."
        if trained.stopped_early:
            yield f"Training ended early: {trained.stopped_early}."
        if trained.skipped_steps:
            skipped = count(len(trained.skipped_steps), "global batch", "global batches")
            yield f"Training left out {skipped} that gave no finite numbers."


def figure_name(name: str) -> str:
    """Returns a figure's name as people write it."""
    return _NAMES.get(name, name)


def number(value: float) -> str:
    """Returns a figure with the digits that are worth reading: 0.9833, 12.35, 1,024, 3.2e-05."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.001 or not value else f"{value:.2g}"
