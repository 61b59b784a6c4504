"""What the command prints: results to standard output, words about them to standard error."""

import json as json_module
import shutil
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.table import Column, Table

from tasks.bench.report import BenchReport, FeedReport
from tasks.config import Config
from tasks.errors import ConfigError
from tasks.evaluate.report import PAGE
from tasks.files import Record
from tasks.prepare.inspection import Inspection
from tasks.prepare.manifest import Feature, FeatureStatistics, Verification
from tasks.prepare.wording import count
from tasks.promote.record import Predictions
from tasks.secrets import scrub
from tasks.track.client import ui_command
from tasks.track.comparison import Comparison
from tasks.track.listing import RunSummary
from tasks.track.sync import Synced

if TYPE_CHECKING:
    from flows.training import Outcome
    from tasks.evaluate.report import EvalReport
    from tasks.host.clean import Removal
    from tasks.host.finding import Finding

MAX_CLASSES = 50  # that an inspection prints
NUM_VALUES = 5  # of a category, the most frequent
MAX_VALUE = 30  # characters of each
STATUS_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def note(text: str) -> None:
    """Prints a sentence to standard error."""
    _console(stderr=True).print(text, soft_wrap=True)


def error(problem: BaseException) -> None:
    """Prints what a user can mend, without a traceback."""
    console = _console(stderr=True)
    console.print("error: ", style="bold red", end="")
    console.print(scrub(str(problem)), soft_wrap=True)


def record(value: Record, *, json: bool) -> None:
    """Prints a record: as JSON, or a line for each field that fits on one."""
    if json:
        print_json(value.model_dump(mode="json"))
        return
    _print_pairs({name: shown for name, shown in value.model_dump(mode="json").items() if not isinstance(shown, list)})


def inspection(found: Inspection, *, json: bool) -> None:
    """Prints what a source holds: counts, features, classes, first examples, and what is wrong with it."""
    if json:
        print_json(found.model_dump(mode="json"))
        return
    bad = f", and {count(found.num_bad, 'bad one')}" if found.num_bad else ""
    size = f"{found.example_bytes_min:,} to {found.example_bytes_max:,} bytes, mean {found.example_bytes_mean:,.0f}"
    _print_pairs(
        {
            "source": f"{found.kind}, {found.num_files:,} file(s), {found.size_bytes:,} bytes",
            "examples": f"{found.num_examples:,}{bad}",
            "of an example": size,
            "splits": ", ".join(f"{name} {count:,}" for name, count in found.splits.items()) or "none",
        }
    )
    text("\n")
    table = Table(Column("feature", overflow="fold"), "kind", "type", "values", box=None, pad_edge=False)
    for name, feature in found.features.items():
        sides = {side: found.statistics.get(f"{name}.{side}") for side in ("width", "height")}
        values = ", ".join(f"{side} {_values(of_side)}" for side, of_side in sides.items() if of_side is not None)
        table.add_row(name, feature.kind, _type(feature), values or _values(found.statistics.get(name)))
    _console().print(table)
    text("\n")
    counts = (Column(name, justify="right") for name in ("examples", "share", *found.splits))
    table = Table(Column("class", overflow="fold"), *counts, box=None, pad_edge=False)
    for each in found.classes[:MAX_CLASSES]:
        table.add_row(
            _one_line(each.name),
            f"{each.num_examples:,}",
            f"{each.fraction:.2%}",
            *(f"{number:,}" for number in each.splits.values()),
        )
    if found.classes:
        _console().print(table)
    if len(found.classes) > MAX_CLASSES:
        text(f"and {len(found.classes) - MAX_CLASSES} more classes\n")
    text("\nthe first examples: key, target, features\n" if found.first else "\n")
    for example in found.first:
        values = ", ".join(f"{name}={value}" for name, value in example.values.items())
        text(_one_line(f"{example.key}: {example.label}: {values}") + "\n")
    note("")
    for line in found.notes:
        note(f"note: {line}")
    for line in found.bad:
        note(f"bad: {line}")
    if found.problem:
        note(f"prepare would refuse it: {found.problem}")


def verification(found: Verification, *, json: bool) -> None:
    """Prints a line for each damaged file, or that there is none."""
    if json:
        print_json(found.model_dump(mode="json"))
        return
    state = f"{len(found.damages)} damaged" if found.damages else f"{found.num_files} files, all as they were written"
    _print_pairs({"directory": str(found.directory), "state": state} | found.damages)


def outcome(found: "Outcome", *, json: bool) -> None:
    """Prints what a finished run has to show, and the commands that look at it."""
    if json:
        print_json(found.model_dump(mode="json"))
        return
    trained, report, shards = found.trained, found.report, found.shards
    splits = ", ".join(f"{split} {count}" for split, count in shards.num_examples.items())
    _print_pairs(
        {
            "run": found.run_id,
            f"{report.split} {report.headline}": f"{report.figures[report.headline]:.4f}  "
            f"({report.num_examples} examples, {_figures(report, but=report.headline)})",
            "examples/s": f"{trained.examples_per_second:,.0f}  ({trained.num_replicas} replicas, "
            f"step p50 {trained.step_seconds_p50 * 1e3:.1f} ms, p95 {trained.step_seconds_p95 * 1e3:.1f} ms)",
            "input wait": f"{trained.input_wait_fraction:.1%} of the step time  "
            f"(p50 {trained.input_wait_seconds_p50 * 1e3:.1f} ms, p95 {trained.input_wait_seconds_p95 * 1e3:.1f} ms)",
            **({"input advice": trained.input_advice} if trained.input_advice else {}),
            **({"stopped early": trained.stopped_early} if trained.stopped_early else {}),
            "shards": f"{shards.num_shards} {'(there already)' if shards.reused else '(written)'}: {splits}",
            "report": str(report.directory / PAGE),
            "model": str(found.exported.directory),
            **({"registered": f"{model.name} version {model.version}"} if (model := found.registered) else {}),
        }
    )
    note("")
    note("Look at the run:")
    opener = ui_command(found.tracking_uri)
    if opener:
        note(f"  {_program_folder()}{opener}")
    note(f"  {found.tracking_url}")
    note("Load the model:")
    load = f"import tensorflow as tf; print(tf.saved_model.load('{found.exported.directory}').signatures)"
    note(f'  {_program_folder()}python -c "{load}"')


def runs(found: Sequence[RunSummary], *, json: bool) -> None:
    """Prints a table of runs."""
    if json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    if not found:
        note("no such runs; begin one with `millstream run CONFIG`")
        return
    figures = (Column(name, justify="right") for name in ("best val", "test", "examples/s"))
    table = Table("run", "status", *figures, box=None, pad_edge=False)
    for each in found:
        metric = each.best_metric.removeprefix("val_").replace("accuracy", "acc")
        best = "" if each.best_value is None else f"{each.best_value:.4f} {metric}"
        unit = "" if each.eval_metric == "accuracy" else f" {each.eval_metric}"
        judged = "" if each.eval_value is None else f"{each.eval_value:.4f}{unit}"
        rate = "" if each.examples_per_second is None else f"{each.examples_per_second:,.0f}"
        table.add_row(each.id, each.status, best, judged, rate)
    console = _console()
    console.width = 1000  # the table takes what it needs, for an id is copied whole
    console.print(table)


def labels(number: int) -> list[str]:
    """Returns short names of runs that are shown side by side: A, B, ..., Z, AA, ..."""
    letters = string.ascii_uppercase
    return [letters[index // 26 - 1] * (index >= 26) + letters[index % 26] for index in range(number)]


def comparison(found: Comparison, *, json: bool) -> None:
    """Prints in what runs differ, a table for each group, and where MLflow shows them side by side."""
    if json:
        print_json(found.model_dump(mode="json"))
        return
    names = labels(len(found.runs))
    _print_pairs({name: f"{state.id}  {state.status}" for name, state in zip(names, found.runs, strict=True)})
    for group, differences in found.differences.items():
        text(f"\n{group}: {len(differences)} differ, {found.num_equal[group]} are equal\n")
        if not differences:
            continue
        table = Table("", *(Column(name, overflow="fold") for name in names), box=None, pad_edge=False)
        for name, values in differences.items():
            table.add_row(f"  {name}", *(_short(name, value) for value in values))
        _console().print(table)
    if found.mlflow_url:
        note("\nLook at them side by side:")
        if found.ui_command:
            note(f"  {_program_folder()}{found.ui_command}")
        note(f"  {found.mlflow_url}")


def synced(found: Sequence[Synced], *, json: bool) -> None:
    """Prints what was sent of each run, and why not all."""
    if json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    if not found:
        note("nothing to send: MLflow has all of every run")
    for each in found:
        points = each.sent.get("metrics", 0)
        things = [f"{points:,} metric points"] * (points > 0) + [name for name in each.sent if name != "metrics"]
        text(f"{each.run_id}: sent {', '.join(things) or 'nothing'}\n")
        if each.problem:
            note(f"  not all: {each.problem}")
        if each.url:
            note(f"  {each.url}")


def findings(found: Sequence["Finding"], *, json: bool) -> None:
    """Prints what the doctor found, with the fix of each."""
    if json:
        print_json([finding.model_dump(mode="json") for finding in found])
        return
    table = Table("", "what", "found", "fix", box=None)
    for finding in found:
        table.add_row(finding.status, finding.name, finding.found, finding.fix, style=STATUS_STYLES[finding.status])
    _console().print(table)


def bench(report: BenchReport, *, json: bool) -> None:
    """Prints what each side took, the rivals' CPU-seconds over ours, and what to change first."""
    if json:
        print_json(report.model_dump(mode="json"))
        return
    table(
        ("side", "metric", "median", "min", "max", "unit"),
        [
            (row.side, row.metric, *(_figure(value) for value in (row.median, row.min, row.max)), row.unit)
            for row in report.rows
        ],
    )
    _print_pairs({f"ratio {name}": f"{ratio:.2f}{_unit(name)}" for name, ratio in report.ratios.items()})
    if isinstance(report, FeedReport):
        for sentence in report.advice:
            text(f"{sentence}\n")
    note(f"{report.host.cores} cores, load {report.host.load:.1f} at the start")


def _unit(ratio: str) -> str:
    return "" if ratio.endswith("examples_per_second") else " in CPU-seconds"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows below each other, however wide they are."""
    shown = Table(*columns, box=None)
    for row in rows:
        shown.add_row(*row)
    console = _console()
    console.width = 1000  # the table takes what it needs
    console.print(shown)


def removals(planned: Sequence["Removal"], *, json: bool) -> None:
    """Prints what is to be removed, with the reason of each, and the sizes by kind."""
    if json:
        print_json([removal.model_dump(mode="json") for removal in planned])
        return
    if not planned:
        note("nothing to remove")
        return
    for removal in planned:
        _console().print(f"{_megabytes([removal]):>14}  {removal.path}: {removal.reason}", soft_wrap=True)
    kinds = {kind: [each for each in planned if each.kind == kind] for kind in sorted({each.kind for each in planned})}
    totals = ", ".join(f"{len(each)} {kind} {_megabytes(each)}" for kind, each in kinds.items())
    _console().print(f"{_megabytes(planned):>14}  in all: {totals}", soft_wrap=True)


def removed(done: Sequence["Removal"]) -> None:
    """Says how much was removed."""
    note(f"removed {len(done)}, {_megabytes(done)}")


def confirmed(question: str) -> bool:
    """Returns whether the person at the terminal says yes; raises ConfigError if there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError("nothing was removed: there is no terminal to ask at; give --yes, or --dry-run only to look")
    _console(stderr=True).print(f"{question} [y/N] ", end="")
    return input().strip().lower() in {"y", "yes"}


def _megabytes(found: Sequence["Removal"]) -> str:
    return f"{sum(removal.size_bytes for removal in found) / 1e6:,.1f} MB"


def predictions(found: Predictions, *, json: bool) -> None:
    """Prints a line for each example: its class with the probability, or its numbers."""
    if json:
        print_json(found.model_dump(mode="json"))
        return
    for line in found.notes:
        note(f"note: {line}")
    rows = []
    for each in found.predictions:
        # With one class its probability says enough.
        shown = each.outputs if each.probability is None else {"probability": each.probability}
        values = ", ".join(f"{name} {value:.6g}" for name, value in shown.items())
        rows.append([_one_line(value) for value in (each.source, each.label or "-", values)])
    table((found.model.uri, "class", "values"), rows)


def text(value: str) -> None:
    """Prints a text as it is."""
    print(value, end="")  # noqa: T201


def config(value: Config) -> None:
    """Prints a config as YAML."""
    text(yaml.safe_dump(value.model_dump(mode="json"), sort_keys=False))


def schema() -> None:
    """Prints the JSON schema of a config."""
    print_json(Config.model_json_schema())


def _console(*, stderr: bool = False) -> Console:
    """Returns a console that prints texts as they are: brackets and colons in data mean nothing."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def _one_line(text: str) -> str:
    """Returns a text of the data with what would break the line, or steer the terminal, written as in Python."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _type(feature: Feature) -> str:
    shape = ", ".join("any" if size is None else str(size) for size in feature.shape)
    return f"{feature.dtype} [{shape}]" if shape else feature.dtype


def _values(found: FeatureStatistics | None) -> str:
    if found is None:
        return ""
    missing = f", {found.num_missing:,} missing" if found.num_missing else ""
    if not found.vocabulary and found.mean is None:
        return f"none{missing}"
    if found.vocabulary:
        first = ", ".join(_cut(_one_line(value)) for value, _ in found.vocabulary[:NUM_VALUES])
        different = len(found.vocabulary) + found.num_left_out
        more = ", ..." if different > NUM_VALUES else ""
        return f"{different:,} different: {first}{more}{missing}"
    return f"{found.min:g} .. {found.max:g}, mean {found.mean:.4g}{missing}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def _short(name: str, value: Any) -> str:
    """Returns a compared value as it fits into a column; --json has all of it."""
    if value is None:
        return "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
    if name.endswith(("digest", "commit")):
        return str(value)[:12]
    return _one_line(str(value))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3f}"


def _program_folder() -> str:
    """Returns what goes before a program of this environment to call it from here; empty if it is on the PATH."""
    folder = Path(sys.executable).parent
    if shutil.which("mlflow") == str(folder / "mlflow"):
        return ""
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return f"{shown}/"


def _figures(report: "EvalReport", *, but: str) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in report.figures.items() if name != but)


def _print_pairs(pairs: dict[str, Any]) -> None:
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        _console().print(f"{name:<{width}}  {value}", soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints a value as JSON."""
    print(json_module.dumps(value, indent=1))  # noqa: T201
