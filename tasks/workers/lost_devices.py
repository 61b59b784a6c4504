"""Lost devices: which of a run's GPUs are gone for good, and how the run goes on with those that are left."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from tasks.distribution import Clustered, Distribute, Hybrid, Mirrored, ModelParallel
from tasks.errors import WorkerError, WorkerLost
from tasks.runs import Run
from tasks.workers import launch
from tasks.workers.locks import wanted_gpus

ANSWER_SECONDS = 60.0  # longest silence of a new process that adds some numbers on a GPU
logger = logging.getLogger("millstream")


def without_lost_devices(run: Run, error: WorkerLost, *, where: str, log: Path) -> Run | None:
    """Returns the run on the GPUs that are left, after a worker that had GPUs was lost; None if none of them is gone.

    One is gone if a new process cannot compute on it. One that others use is not: what it lacks is memory, and runs of
    ours wait for its lock. `where` is the place of the loss, such as "step 30".

    What this process starts from then on sees those that are left only (CUDA_VISIBLE_DEVICES); config.yaml of the run
    asks for no more than there are, and state.json says what was lost. Raises WorkerError, which names them, if
    `distribute.on_lost_device` is stop, or if the run cannot do with those that are left.
    """
    distribute = run.config.distribute
    had = wanted_gpus(distribute)
    left = [gpu for gpu in had if _answers(gpu, log)]
    if left == had:
        return None
    gone = ", ".join(f"gpu-{gpu}" for gpu in had if gpu not in left)
    there = ", ".join(f"gpu-{gpu}" for gpu in left) or "none"
    what = f"{gone} is gone for good (no new process can compute on it), left of this run's GPUs: {there}"
    smaller = shrink(distribute, left)
    if smaller is None:
        raise WorkerError(
            f"{error}; {what}; distribute.kind={distribute.kind} cannot do with these: the same command goes on from "
            f"{where} with other GPUs (CUDA_VISIBLE_DEVICES) or another distribute.kind"
        ) from error
    fewer, gpus = smaller
    if distribute.on_lost_device == "stop":
        raise WorkerError(
            f"{error}; {what}; `export CUDA_VISIBLE_DEVICES={','.join(gpus)}` and the same command with "
            f"{_changes(distribute, fewer) or 'the same config'} go on from {where} to the same weights, "
            "distribute.on_lost_device=shrink by itself"
        ) from error
    line = f"{gone} lost at {where}: {_num_replicas(distribute, had)} replicas became {_num_replicas(fewer, gpus)}"
    logger.warning("%s; %s; goes on with the same global batch", what, line)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    run.update(lost_devices=(*run.state().lost_devices, line))
    return run.on(fewer)


def shrink(distribute: Distribute, left: Sequence[str]) -> tuple[Distribute, list[str]] | None:
    """Returns what asks for no more than the GPUs that are left, and those of them that it takes.

    None if there is no such: a layer's device cannot be done without. Workers have an equal part of the GPUs each, and
    groups a whole number of them, so that some may be left over.
    """
    count = len(left)
    match distribute:
        case Mirrored() if left:
            number = "auto" if distribute.num_replicas == "auto" else count
            return distribute.model_copy(update={"num_replicas": number, "devices": None}), list(left)
        case Clustered() if left:
            workers = min(distribute.num_workers, count)
            return distribute.model_copy(update={"num_workers": workers}), list(left[: count // workers * workers])
        case Hybrid() if groups := count // distribute.num_devices:
            fewer = distribute.model_copy(update={"num_groups": groups})
            return fewer, list(left[: fewer.total_devices])
    return None


def _answers(gpu: str, log: Path) -> bool:
    """Returns whether a new process, which sees no other, can compute on a GPU of this host."""
    try:
        answer = launch.call(
            "tasks.workers.devices:try_gpu",
            {},
            log=log,
            environments=[{"CUDA_VISIBLE_DEVICES": gpu}],
            hang_timeout_seconds=ANSWER_SECONDS,
        )
    except WorkerError as error:
        logger.warning("gpu-%s: %s", gpu, error)
        return False
    return bool(answer["answers"])


def _changes(before: Distribute, after: Distribute) -> str:
    """Returns the settings that make one of the other, as a command takes them."""
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    changed = [
        f"distribute.{name}={'null' if new[name] is None else new[name]}" for name in new if new[name] != old[name]
    ]
    return " ".join(changed)


def _num_replicas(distribute: Distribute, gpus: Sequence[str]) -> int:
    return len(gpus) // (distribute.num_devices if isinstance(distribute, ModelParallel) else 1)
