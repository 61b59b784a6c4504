"""The scaling bench: a training on one replica, two and more, each in a process of its own, and its all-reduce."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tasks.bench.on_replicas import call_side, config_on
from tasks.bench.runner import examine_host
from tasks.bench.scaling_report import Point, Reduction, ScalingReport
from tasks.bench.step_case import StepCase, step_cases
from tasks.config import Config
from tasks.download.download import download
from tasks.errors import ConfigError, WorkerError, WorkerLost
from tasks.prepare.manifest import Shards
from tasks.prepare.prepare import prepare
from tasks.workers import launch

SIDES = "tasks.bench.scaling_sides"
DEFAULT_MODEL = "cnn"  # of the step bench
ALL_REDUCES = {"CPU": ("one_device", "hierarchical", "ring"), "GPU": ("nccl", "hierarchical", "one_device", "ring")}

logger = logging.getLogger("millstream")


def bench_scaling(
    config: Config | None, workspace: Path, *, max_replicas: int | None, num_steps: int, rounds: int
) -> ScalingReport:
    """Returns the rates of a config's training, by default of a small CNN's, on 1, 2, 4 and so on up to all devices.

    Weak scaling gives each replica the config's global batch, strong scaling divides it among them. A rate is measured
    over `rounds` windows of `num_steps`, feed included. Then the ways to sum gradients are timed on the most replicas.
    Raises what a training raises.
    """
    log = workspace / "bench.log"
    host = examine_host(["numpy", "tensorflow", "keras"])
    found = launch.call("tasks.workers.devices:describe_devices", {}, log=log)["devices"]
    gpus = tuple(device for device in found if device.startswith("GPU"))
    counts = replica_counts(max_replicas or len(gpus) or host.cores)
    with tempfile.TemporaryDirectory(prefix="millstream-scaling-") as folder:
        if config is None:
            config, shards = _default(Path(folder, "case"))
        else:
            shards = prepare(config.name, config.data, download(config.data, workspace), workspace)
        common = {"shards": shards.model_dump(mode="json"), "folder": folder}
        points: list[Point] = []
        for mode in ("weak", "strong"):
            for count in counts:
                batch_size = config.feed.global_batch_size * (count if mode == "weak" else 1)
                logger.info("bench: %s scaling, %d replica(s), global batches of %d", mode, count, batch_size)
                on_devices = config_on(config, count, feed={"global_batch_size": batch_size})
                arguments = {
                    **common,
                    "config": on_devices.model_dump(mode="json"),
                    "num_steps": num_steps,
                    "rounds": rounds,
                }
                measured = call_side(f"{SIDES}:throughput", arguments, config, log)
                first = next((point for point in points if point.mode == mode), None)
                points.append(_point(mode, count, batch_size, measured, first))
        reductions = []
        for all_reduce in ALL_REDUCES["GPU" if gpus else "CPU"] if counts[-1] > 1 else ():
            logger.info("bench: all-reduce %s, %d replicas", all_reduce, counts[-1])
            on_devices = config_on(config, counts[-1], distribute={"all_reduce": all_reduce})
            arguments = {**common, "config": on_devices.model_dump(mode="json"), "rounds": rounds}
            try:
                answer = call_side(f"{SIDES}:sum_gradients", arguments, config, log)
            except (ConfigError, WorkerError, WorkerLost) as error:
                answer = {"failed": str(error)}
            reductions.append(Reduction(all_reduce=all_reduce, num_replicas=counts[-1], **answer))
    return ScalingReport(name=config.name, devices=gpus, points=tuple(points), reductions=tuple(reductions), host=host)


def replica_counts(largest: int) -> list[int]:
    """Returns the powers of two below a number of replicas, and that number."""
    return [*(2**power for power in range(largest.bit_length()) if 2**power < largest), largest]


def _point(mode: Any, num_replicas: int, batch_size: int, measured: dict[str, Any], first: Point | None) -> Point:
    rates: Sequence[float] = measured["examples_per_second"]
    speedup = median(rates) / first.examples_per_second if first else 1.0
    return Point(
        mode=mode,
        num_replicas=num_replicas,
        global_batch_size=batch_size,
        examples_per_second=median(rates),
        min=min(rates),
        max=max(rates),
        speedup=speedup,
        efficiency=speedup / num_replicas,
        input_wait_fraction=measured["input_wait_fraction"],
    )


def _default(folder: Path) -> tuple[Config, Shards]:
    case = StepCase.read(step_cases(folder, DEFAULT_MODEL, 1)[0])
    return case.config, case.as_shards()
