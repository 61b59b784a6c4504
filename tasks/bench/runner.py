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
from typing import NamedTuple, TypeVar

from tasks.bench.report import Host, Row

OURS = "ours"
IDLE_CHECK_SECONDS = 0.02
IDLE_LOAD = 0.1  # of a core: some threads look now and then for something to do
MAX_IDLE_CHECKS = 250

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}

Result = TypeVar("Result")


class Cost(NamedTuple):
    """What one call took; CPU-seconds are those of the process, its threads and its finished children.

    Both are counted until the threads are idle: what they prepare for the next call is paid for by the one before.
    """

    cpu_seconds: float
    wall_seconds: float


def measure_in_turns(
    sides: Mapping[str, Callable[[Path], object]], cases: Sequence[Path], *, rounds: int, preload: Sequence[str] = ()
) -> list[dict[str, list[Cost]]]:
    """Returns for each case the costs of each side, one a round: A B A B. A side is a function at the top of a module,
    which may return a Cost that it has measured itself.

    Each side's first call for a case is not counted. Modules of `preload` are imported once for all processes. Raises
    what a side raises.
    """
    with ExitStack() as stack:
        processes = {side: stack.enter_context(_process(preload)) for side in sides}
        measured = []
        for case in cases:
            costs: dict[str, list[Cost]] = {side: [] for side in sides}
            for _ in range(1 + rounds):  # the first pays for imports and cold pages
                for side, function in sides.items():
                    costs[side].append(processes[side].submit(_measure, function, case).result())
            measured.append({side: counted for side, (_, *counted) in costs.items()})
    return measured


def call_alone(function: Callable[..., Result], *arguments: object, preload: Sequence[str] = ()) -> Result:
    """Returns what a function at the top of a module returns in a new process."""
    with _process(preload) as process:
        return process.submit(function, *arguments).result()


def rows_of(costs: Mapping[str, Sequence[Cost]], *, case: str) -> list[Row]:
    """Returns the CPU-seconds and wall seconds of each side; the metric ends in `case`."""
    rows = []
    for side, measured in costs.items():
        for metric, values in zip(Cost._fields, zip(*measured, strict=True), strict=True):
            rows.append(row_of(side, f"{metric}_{case}", values, "s"))
    return rows


def row_of(side: str, metric: str, values: Sequence[float], unit: str) -> Row:
    """Returns one figure of one side, over all rounds."""
    return Row(side=side, metric=metric, median=statistics.median(values), min=min(values), max=max(values), unit=unit)


def ratios_of(costs: Mapping[str, Sequence[Cost]]) -> dict[str, float]:
    """Returns each rival's CPU-seconds over ours, the median of the rounds."""
    return {side: ratio(measured, costs[OURS]) for side, measured in costs.items() if side != OURS}


def ratio(rival: Sequence[Cost], ours: Sequence[Cost]) -> float:
    """Returns the rival's CPU-seconds over ours, the median of the rounds."""
    return statistics.median(theirs.cpu_seconds / cost.cpu_seconds for theirs, cost in zip(rival, ours, strict=True))


def examine_host(packages: Sequence[str]) -> Host:
    """Returns the cores this process may use, the load and the versions of packages."""
    return Host(
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        versions={package: importlib.metadata.version(package) for package in packages},
    )


def _process(preload: Sequence[str]) -> ProcessPoolExecutor:
    """Returns a process; those with the same `preload` come from one that has imported it and done nothing with it."""
    if not preload:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _initialize)
    os.environ |= QUIET  # now, because the fork server keeps the environment of its start
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return ProcessPoolExecutor(1, context, _initialize)


def _initialize() -> None:
    os.environ |= {"CUDA_VISIBLE_DEVICES": ""} | QUIET
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # TFDS tells of its progress there; ours is for the report


def _measure(side: Callable[[Path], object], case: Path) -> Cost:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    cost = side(case)
    if isinstance(cost, Cost):  # it has measured itself
        return cost
    done = _wait_until_idle()
    return Cost(cpu_seconds=_cpu_seconds() - cpu, wall_seconds=done - wall)


def _wait_until_idle() -> float:
    """Returns the time, by the performance counter, since which the threads of this process are idle."""
    for _ in range(MAX_IDLE_CHECKS):
        since, before = time.perf_counter(), _cpu_seconds()
        time.sleep(IDLE_CHECK_SECONDS)
        if _cpu_seconds() - before < IDLE_LOAD * IDLE_CHECK_SECONDS:
            break
    return since


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
