"""The step bench: the same model and batches through our loop, Keras's fit and two loops written by hand."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tasks.bench.report import BenchReport, Row
from tasks.bench.runner import OURS, Cost, examine_host, measure_in_turns, row_of
from tasks.bench.step_case import BATCH_SIZE, CHECKPOINT_STEPS, MODELS, step_cases

RIVALS = ("fit", "hand_loop", "tf_function")
SIDES = (OURS, "ours_nondeterministic", *RIVALS)
CHECKPOINT, LOGGING = "checkpoint", "logging"
NUM_REPLICAS = (1, 2)
PRELOAD = ("tensorflow",)

logger = logging.getLogger("millstream")


def bench_step(
    *, rounds: int, models: Sequence[str] = tuple(MODELS), replicas: Sequence[int] = NUM_REPLICAS
) -> BenchReport:
    """Returns what a step costs each side on one and two logical devices of the CPU, for each of MODELS.

    Every side takes the same batch, which is there already, with the same model and optimizer. A step's cost is that of
    a long turn less that of a short one, over the steps that it is longer; what is left of the short one is the fixed
    cost of a call. Ratios are those of most replicas: a rival's CPU-seconds a step over ours, named after the rival;
    that of the CNN ends in `_cnn`. `hand_loop_cnn_examples_per_second` is our rate over that of the loop.
    """
    host = examine_host(["numpy", "tensorflow", "keras"])
    rows: list[Row] = []
    ratios: dict[str, float] = {}
    for model in models:
        for num_replicas in replicas:
            logger.info("bench: %s on %d replica(s), %d rounds", model, num_replicas, rounds)
            with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder:
                cases = step_cases(Path(folder, "case"), model, num_replicas)
                sides = {side: partial(_turn, side) for side in SIDES}
                short, long = measure_in_turns(sides, cases, rounds=rounds, preload=PRELOAD)
                added = {CHECKPOINT: _checkpoint_turn, LOGGING: _logging_turn}
                (more,) = measure_in_turns(added, cases[:1], rounds=rounds, preload=PRELOAD)
            name, steps = f"{model}_x{num_replicas}", (MODELS[model].short, MODELS[model].long)
            rows += step_rows(short, long, steps, name=name)
            ours = step_costs(short[OURS], long[OURS], steps)
            rows += added_rows(CHECKPOINT, more[CHECKPOINT], ours, num_steps=CHECKPOINT_STEPS, name=name)
            rows += added_rows(LOGGING, more[LOGGING], ours, num_steps=1, name=name)
            if num_replicas == replicas[-1]:
                ratios |= step_ratios(short, long, steps, model=model)
    return BenchReport(rows=tuple(rows), ratios=ratios, host=host)


def step_costs(short: Sequence[Cost], long: Sequence[Cost], steps: tuple[int, int]) -> list[Cost]:
    """Returns what a step costs in each round, of turns of so many steps."""
    difference = steps[1] - steps[0]
    return [
        Cost(*((more - less) / difference for more, less in zip(whole, part, strict=True)))
        for whole, part in zip(long, short, strict=True)
    ]


def step_rows(
    short: Mapping[str, Sequence[Cost]], long: Mapping[str, Sequence[Cost]], steps: tuple[int, int], *, name: str
) -> list[Row]:
    """Returns each side's cost of a step, its rates and its cost of a call."""
    rows = []
    for side in short:
        costs = step_costs(short[side], long[side], steps)
        rates = [1 / cost.wall_seconds for cost in costs]
        fixed = [
            turn.wall_seconds - steps[0] * cost.wall_seconds for turn, cost in zip(short[side], costs, strict=True)
        ]
        rows += [
            row_of(side, f"cpu_seconds_per_step_{name}", [cost.cpu_seconds for cost in costs], "s"),
            row_of(side, f"steps_per_second_{name}", rates, "steps/s"),
            row_of(side, f"examples_per_second_{name}", [rate * BATCH_SIZE for rate in rates], "examples/s"),
            row_of(side, f"seconds_per_call_{name}", fixed, "s"),
        ]
    return rows


def added_rows(side: str, added: Sequence[Cost], ours: Sequence[Cost], *, num_steps: int, name: str) -> list[Row]:
    """Returns what a side adds to so many steps, of which each costs `ours`, in time and in CPU-seconds."""
    rows, of = [], "step" if num_steps == 1 else f"{num_steps}_steps"
    for which, metric in (("wall_seconds", "share"), ("cpu_seconds", "cpu_share")):
        steps = num_steps * median(getattr(cost, which) for cost in ours)
        shares = [getattr(cost, which) / steps for cost in added]
        rows.append(row_of(side, f"{metric}_of_{of}_{name}", shares, "share"))
    return rows


def step_ratios(
    short: Mapping[str, Sequence[Cost]], long: Mapping[str, Sequence[Cost]], steps: tuple[int, int], *, model: str
) -> dict[str, float]:
    """Returns each rival's CPU-seconds a step over ours, the median of the rounds, and of the CNN our rate over its."""
    costs = {side: step_costs(short[side], long[side], steps) for side in (OURS, *RIVALS)}

    def over_ours(side: str, which: str) -> float:
        pairs = zip(costs[side], costs[OURS], strict=True)
        return median(getattr(theirs, which) / getattr(ours, which) for theirs, ours in pairs)

    ending = "" if model == "mlp" else f"_{model}"
    ratios = {f"{side}{ending}": over_ours(side, "cpu_seconds") for side in RIVALS}
    if model == "cnn":
        ratios["hand_loop_cnn_examples_per_second"] = over_ours("hand_loop", "wall_seconds")
    return ratios


# It runs in a process of its own; TensorFlow is imported there alone.
def _turn(side: str, file: Path) -> Cost:
    from tasks.bench.step_sides import turn

    return turn(side, file)


def _checkpoint_turn(file: Path) -> Cost:
    from tasks.bench.step_sides import checkpoint_turn

    return checkpoint_turn(file)


def _logging_turn(file: Path) -> Cost:
    from tasks.bench.step_sides import logging_turn

    return logging_turn(file)
