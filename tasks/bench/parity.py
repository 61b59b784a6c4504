"""The parity bench: a user's own config on one, two and four replicas, and with Keras's fit on the same steps."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.bench.on_replicas import call_side, config_on
from tasks.bench.parity_report import ParityReport, Parting
from tasks.bench.runner import OURS, examine_host
from tasks.config import Config
from tasks.download.download import download
from tasks.errors import WorkerError, WorkerLost
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import prepare

FIT = "fit"
TOLERANCES = {"float64": 1e-9}
ROUNDING = 1e-6  # of a weight in float32 after one step

logger = logging.getLogger("millstream")


def bench_parity(
    config: Config, workspace: Path, *, num_steps: int, replicas: Sequence[int], fit: bool = False
) -> ParityReport:
    """Returns how far the variables of a config's training part on these numbers of replicas, step by step.

    It is trained in the config's own precision and in float64, the latter of which tells rounding from logic. Of each
    side and precision the training on fewest replicas is what the others are held against: the same weights at the
    start, the same global batches. `fit` adds Keras's; what it cannot do is said in its row. Raises what a training of
    ours raises.
    """
    shards = prepare(config.name, config.data, download(config.data, workspace), workspace)
    log, replicas = workspace / "bench.log", sorted(set(replicas))
    rows: list[Parting] = []
    for precision in dict.fromkeys([config.train.precision, "float64"]):
        for side in (OURS, *([FIT] if fit else [])):
            rows += _partings(
                config, shards, log, side=side, precision=precision, num_steps=num_steps, replicas=replicas
            )
    return ParityReport(num_steps=num_steps, rows=tuple(rows), host=examine_host(["numpy", "tensorflow", "keras"]))


def parted(answer: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """Returns the fields of a Parting, of the worst (variable, difference) after each step."""
    if "failed" in answer:
        return {"failed": answer["failed"]}
    worst = [(variable, float("inf") if value is None else value) for variable, value in answer["worst"]]
    first = next((step for step, (_, value) in enumerate(worst, 1) if value > tolerance), None)
    variable, difference = worst[-1]
    return {
        "first_step": first,
        "first_variable": worst[first - 1][0] if first else "",
        "difference": difference,
        "variable": variable if difference else "",
    }


def _partings(
    config: Config,
    shards: Shards,
    log: Path,
    *,
    side: str,
    precision: str,
    num_steps: int,
    replicas: Sequence[int],
) -> Iterator[Parting]:
    """Yields what became of each number of replicas."""
    tolerance = TOLERANCES.get(precision, ROUNDING)
    with tempfile.TemporaryDirectory(prefix="millstream-parity-") as folder:
        for num_replicas in replicas:
            logger.info("bench: %s in %s on %d replica(s), %d steps", side, precision, num_replicas, num_steps)
            parting = Parting(side=side, precision=precision, num_replicas=num_replicas, tolerance=tolerance)
            arguments = {
                "config": config_on(config, num_replicas, train={"precision": precision}).model_dump(mode="json"),
                "shards": shards.model_dump(mode="json"),
                "folder": folder,
                "num_steps": num_steps,
            }
            try:
                answer = call_side(f"tasks.bench.parity_sides:{side}", arguments, config, log)
            except (WorkerError, WorkerLost) as error:
                if side == OURS:
                    raise
                answer = {"failed": str(error)}
            yield parting.model_copy(update=parted(answer, tolerance))
