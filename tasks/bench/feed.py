"""The feed bench: one data set through our feed and through its rivals, what each stage costs, and who would wait."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tasks.bench.case import Case, config_case, has_grain, jpeg_case, records_case
from tasks.bench.report import FeedReport, Row
from tasks.bench.runner import OURS, Cost, call_alone, examine_host, measure_in_turns, ratio, row_of
from tasks.config import Config
from tasks.feed.advice import Stage, advise_on_stages, feed_facts

RIVALS = ("guide", "tfds", "grain", "raw_read", "synthetic")
STAGE_SIDES = ("raw_read", "synthetic", "parse", "decode")  # of which the stages are made
ACCELERATOR_RATES = (2_400, 10_000, 20_000)  # examples/s
LARGEST_LOAD = 0.8  # of what the feed gives: an accelerator that takes more has to wait
ACCELERATOR_SECONDS = 5.0
RESUMED_AT = 0.9  # of an epoch
RECORD_BYTES = 3072
PRELOAD = ("tensorflow",)  # once for all sides: it takes longer than most of them

logger = logging.getLogger("millstream")


def bench_feed(
    config: Config | None,
    workspace: Path,
    *,
    num_examples: int,
    num_images: int,
    rounds: int,
    gpu_rate: float,
    accelerator_seconds: float = ACCELERATOR_SECONDS,
) -> FeedReport:
    """Returns what delivering examples costs each side: records of 3 KB and JPEGs, or the shards of a config.

    A turn is `num_examples`, or `num_images` where images are decoded, and no more than an epoch. Ratios are named
    after the rival. `raw_read` and `synthetic` are no rivals but bounds, the latter for the second epoch of a feed that
    is cached: `cached_vs_synthetic`. `gpu_rate` is the number of examples that one GPU takes in a second.
    """
    host = examine_host(["numpy", "tensorflow", "tensorflow-datasets", *(["grain"] if has_grain() else [])])
    rows: list[Row] = []
    ratios: dict[str, float] = {}
    advice: list[str] = []
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
        if config is None:
            files = {
                "3kb": records_case(Path(folder, "3kb"), num_examples, RECORD_BYTES),
                "jpeg": jpeg_case(Path(folder, "jpeg"), num_images),
            }
        else:
            file = config_case(Path(folder), config, workspace, num_examples=num_examples, num_images=num_images)
            files = {config.name: file}
        for name, file in files.items():
            case = Case.read(file)
            logger.info("bench: %s, %d examples a turn, %d rounds", name, case.num_examples, rounds)
            sides = {side: partial(_turn, side) for side in _sides(case)}
            (costs,) = measure_in_turns(sides, [file], rounds=rounds, preload=PRELOAD)
            rate = case.num_examples / median(cost.wall_seconds for cost in costs[OURS])
            stages = stage_seconds(costs)
            rows += side_rows(costs, case.num_examples, name=name)
            rows += stage_rows(stages, case.num_examples, name=name, cores=host.cores)
            rows.append(row_of("host", f"gpus_{name}", [rate / gpu_rate], "GPUs"))
            rows += _waits(file, rate, name=name, seconds=accelerator_seconds)
            ratios |= ratios_by_rival(costs)
            facts = feed_facts(case.manifest(), case.feed, cache="none", cores=host.cores)
            advice.append(
                f"{name}: {rate:,.0f} examples/s on {host.cores} core(s) feed {rate / gpu_rate:.2f} GPUs of "
                f"{gpu_rate:,.0f} examples/s; "
                + advise_on_stages({stage: median(seconds) for stage, seconds in stages.items()}, facts)
            )
    return FeedReport(rows=tuple(rows), ratios=ratios, host=host, advice=tuple(advice))


def side_rows(costs: Mapping[str, Sequence[Cost]], num_examples: int, *, name: str) -> list[Row]:
    """Returns the rate and the CPU-seconds of each side that delivers whole batches; the metrics end in `name`."""
    rows = []
    for side, measured in costs.items():
        if side in {"parse", "decode"}:
            continue
        rates = [num_examples / cost.wall_seconds for cost in measured]
        rows.append(row_of(side, f"examples_per_second_{name}", rates, "examples/s"))
        rows.append(row_of(side, f"cpu_seconds_{name}", [cost.cpu_seconds for cost in measured], "s"))
    return rows


def stage_seconds(costs: Mapping[str, Sequence[Cost]]) -> dict[Stage, list[float]]:
    """Returns the CPU-seconds of each stage, one a round; `batch` is what is left of the whole, at least 0.

    What it takes to fetch a ready batch is taken off stages that were measured on one.
    """

    def seconds(side: str) -> list[float]:
        return [cost.cpu_seconds for cost in costs[side]]

    def less(whole: list[float], *parts: list[float]) -> list[float]:
        return [max(0.0, total - sum(taken)) for total, *taken in zip(whole, *parts, strict=True)]

    ready = seconds("synthetic")
    read, parse, decode = seconds("raw_read"), less(seconds("parse"), ready), less(seconds("decode"), ready)
    return {"read": read, "parse": parse, "decode": decode, "batch": less(seconds(OURS), read, parse, decode)}


def stage_rows(stages: Mapping[Stage, Sequence[float]], num_examples: int, *, name: str, cores: int) -> list[Row]:
    """Returns the CPU-seconds of each stage, and its bound: the rate if all cores did nothing else."""
    whole = [sum(parts) for parts in zip(*stages.values(), strict=True)]
    rows = []
    for stage, seconds in (*stages.items(), ("whole", whole)):
        rows.append(row_of(f"stage {stage}", f"cpu_seconds_{name}", seconds, "s"))
        if min(seconds) > 0:
            bounds = [cores * num_examples / value for value in seconds]
            rows.append(row_of(f"stage {stage}", f"bound_{name}", bounds, "examples/s"))
    return rows


def ratios_by_rival(costs: Mapping[str, Sequence[Cost]]) -> dict[str, float]:
    """Returns each rival's CPU-seconds over ours; `naive` also over ours on resized shards."""
    if "naive" in costs:
        ratios = {rival: ratio(costs[rival], costs[OURS]) for rival in ("naive", "naive_antialias")}
        return ratios | {"naive_resized": ratio(costs["naive"], costs["ours_resized"])}
    ratios = {rival: ratio(costs[rival], costs[OURS]) for rival in RIVALS if rival in costs}
    if "ours_cached" in costs:
        ratios["cached_vs_synthetic"] = ratio(costs["synthetic"], costs["ours_cached"])
    return ratios


def _sides(case: Case) -> list[str]:
    """Returns the sides that a case has, those of the stages included."""
    if case.resized is not None:
        return [OURS, "naive", "naive_antialias", "ours_resized", *STAGE_SIDES]
    rivals = [rival for rival in RIVALS if rival != "grain" or case.array_record is not None]
    return [OURS, *rivals, *(["ours_cached"] if case.can_be_cached else []), "parse", "decode"]


def _waits(file: Path, rate: float, *, name: str, seconds: float) -> list[Row]:
    """Returns what accelerators wait that take up to so much of the measured rate, and what a resumed run does."""
    rows = []
    for taken in ACCELERATOR_RATES:
        if taken <= LARGEST_LOAD * rate:
            share = call_alone(_stall_share, file, taken, seconds, preload=PRELOAD)
            rows.append(row_of(f"accelerator of {taken}/s", f"stall_share_{name}", [share], "share"))
    first = call_alone(_first_batch_seconds, file, preload=PRELOAD)
    rows.append(row_of(OURS, f"first_batch_seconds_{name}", [first], "s"))
    return rows


# These run in a process of their own; TensorFlow is imported there alone.
def _turn(side: str, file: Path) -> int:
    from tasks.bench.pipelines import turn

    return turn(side, file)


def _stall_share(file: Path, rate: float, seconds: float) -> float:
    from tasks.bench.accelerator import stall_share

    return stall_share(file, examples_per_second=rate, seconds=seconds)


def _first_batch_seconds(file: Path) -> float:
    from tasks.bench.accelerator import first_batch_seconds

    return first_batch_seconds(file, epoch_share=RESUMED_AT)
