"""The scaling command: what more replicas gain on this machine, as a table, a picture and nested MLflow runs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from flows import display
from flows.options import Json, Overrides
from tasks.bench.scaling_report import ScalingReport
from tasks.config import Config, load_config
from tasks.runs import workspace_of
from tasks.track.client import default_uri, first_line, is_outage, ui_command
from tasks.track.nested import Entry, log_nested


def scaling(
    config: Path | None = None,
    *overrides: Overrides,
    max_replicas: Annotated[PositiveInt | None, Parameter(name="--max-replicas")] = None,
    steps: PositiveInt = 50,
    rounds: PositiveInt = 5,
    png: Path | None = None,
    json: Json = False,
) -> None:
    """A training on 1, 2, 4 ... N replicas, each in its own process: weak and strong scaling, and each all-reduce.

    Example: millstream bench scaling conf/digits.yaml --max-replicas 2

    Parameters
    ----------
    config
        What to train; default: a small CNN on random images.
    max_replicas
        N; default: every GPU, or without one a part of the CPU for each core, which all share what one would have.
    steps
        Number of steps in a window.
    rounds
        Windows that are measured, after a warm-up.
    png
        File of the picture; default: scaling-<name>.png in the workspace.
    """
    from tasks.bench.scaling import bench_scaling
    from tasks.bench.scaling_plot import write_scaling_plot

    resolved, workspace = load_config(config, overrides) if config is not None else None, workspace_of()
    report = bench_scaling(resolved, workspace, max_replicas=max_replicas, num_steps=steps, rounds=rounds)
    picture = png or workspace / f"scaling-{report.name}.png"
    write_scaling_plot(report, picture)
    link = track_scaling(report, resolved, workspace, picture)
    if json:
        display.record(report, json=True)
        return
    _show(report)
    display.note(f"picture {picture}" + (f"; MLflow run {link}" if link else ""))


def track_scaling(report: ScalingReport, config: Config | None, workspace: Path, picture: Path) -> str:
    """Returns the link of an MLflow run that holds the best figures, with a run below it for each point.

    Empty, and it is said, if the server does not answer.
    """
    uri = (config.tracking.uri if config else None) or default_uri(workspace)
    points = [
        Entry(
            f"{point.mode}-{point.num_replicas}",
            {
                "mode": point.mode,
                "num_replicas": str(point.num_replicas),
                "global_batch_size": str(point.global_batch_size),
            },
            point.model_dump(include={"examples_per_second", "speedup", "efficiency", "input_wait_fraction"}),
        )
        for point in report.points
    ]
    sums = [
        Entry(
            f"all-reduce-{each.all_reduce}",
            {"all_reduce": each.all_reduce, "num_replicas": str(each.num_replicas), "failed": each.failed[:500]},
            {"seconds": each.seconds, "is_right": float(each.is_right), "num_bytes": float(each.num_bytes)},
        )
        for each in report.reductions
    ]
    devices = ", ".join(report.devices) or f"CPU, {report.host.cores} cores"
    parent = Entry(f"{report.name}-scaling", {"config": report.name, "devices": devices[:500]}, report.best())
    try:
        link = log_nested(uri, workspace, f"{report.name}-scaling", parent, [*points, *sums], artifacts=[picture])
    except Exception as error:
        if not is_outage(error):
            raise
        display.note(f"the figures are not in MLflow, because {uri} does not answer: {first_line(error)}")
        return ""
    command = ui_command(uri)
    return f"{link} (once `{command}` is up)" if command else link


def _show(report: ScalingReport) -> None:
    display.table(
        ("scaling", "replicas", "global batch", "examples/s", "speedup", "efficiency", "input wait"),
        [
            (
                point.mode,
                str(point.num_replicas),
                str(point.global_batch_size),
                f"{point.examples_per_second:,.0f}",
                f"{point.speedup:.2f}",
                f"{point.efficiency:.0%}",
                f"{point.input_wait_fraction:.0%}",
            )
            for point in report.points
        ],
    )
    display.table(
        ("all-reduce", "replicas", "MB", "ms", "sums"),
        [
            (
                each.all_reduce,
                str(each.num_replicas),
                f"{each.num_bytes / 1e6:.1f}",
                f"{1000 * each.seconds:.2f}",
                each.failed or ("right" if each.is_right else "WRONG"),
            )
            for each in report.reductions
        ],
    )
    if not report.devices:
        display.note("the replicas are parts of one CPU, which one alone uses whole: this says nothing of several GPUs")
