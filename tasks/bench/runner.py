"""The runner: every side in a process of its own, in turns, so that a busy minute of the host falls on all."""

import importlib.metadata
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tasks.bench.report import Host, Row

OURS = "ours"


class Cost(NamedTuple):
    """What one call took; CPU-seconds are those of the process, its threads and its finished children."""

    cpu_seconds: float
    wall_seconds: float


def measure_in_turns(
    sides: Mapping[str, Callable[[Path], None]], cases: Sequence[Path], *, rounds: int
) -> list[dict[str, list[Cost]]]:
    """Returns for each case the costs of each side, one a round: A B A B. A side is a function at the top of a module.

    Each side's first call for a case is not counted. Raises what a side raises.
    """
    with ExitStack() as stack:
        processes = {
            side: stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _initialize))
            for side in sides
        }
        measured = []
        for case in cases:
            costs: dict[str, list[Cost]] = {side: [] for side in sides}
            for _ in range(1 + rounds):  # the first pays for imports and cold pages
                for side, function in sides.items():
                    costs[side].append(processes[side].submit(_measure, function, case).result())
            measured.append({side: counted for side, (_, *counted) in costs.items()})
    return measured


def rows_of(costs: Mapping[str, Sequence[Cost]], *, case: str) -> list[Row]:
    """Returns the CPU-seconds and wall seconds of each side; the metric ends in `case`."""
    rows = []
    for side, measured in costs.items():
        for metric, values in zip(Cost._fields, zip(*measured, strict=True), strict=True):
            rows.append(
                Row(
                    side=side,
                    metric=f"{metric}_{case}",
                    median=statistics.median(values),
                    min=min(values),
                    max=max(values),
                    unit="s",
                )
            )
    return rows


def ratios_of(costs: Mapping[str, Sequence[Cost]]) -> dict[str, float]:
    """Returns each rival's CPU-seconds over ours, the median of the rounds."""
    return {
        side: statistics.median(
            rival.cpu_seconds / ours.cpu_seconds for rival, ours in zip(measured, costs[OURS], strict=True)
        )
        for side, measured in costs.items()
        if side != OURS
    }


def examine_host(packages: Sequence[str]) -> Host:
    """Returns the cores this process may use, the load and the versions of packages."""
    return Host(
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        versions={package: importlib.metadata.version(package) for package in packages},
    )


def _initialize() -> None:
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # TFDS tells of its progress there; ours is for the report


def _measure(side: Callable[[Path], None], case: Path) -> Cost:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    side(case)
    return Cost(cpu_seconds=_cpu_seconds() - cpu, wall_seconds=time.perf_counter() - wall)


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
