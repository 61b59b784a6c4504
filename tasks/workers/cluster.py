"""Cluster: the workers of a run on this host, and what the environment tells each of them."""

import json
import os
import re
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tasks.distribution import Distribute, MultiWorkerMirrored
from tasks.errors import ConfigError

TF_CONFIG = "TF_CONFIG"


def plan_workers(distribute: Distribute, *, gpus: list[str], ports: list[int]) -> list[dict[str, str]]:
    """Returns the environment of each worker of a training, the chief's first; `ports` are of as many workers.

    `gpus` are the names by which CUDA_VISIBLE_DEVICES knows the GPUs of this host: each worker gets an equal part.
    Raises ConfigError if they cannot be shared evenly.
    """
    if not isinstance(distribute, MultiWorkerMirrored):
        return [{}]
    count = distribute.num_workers
    assert len(ports) == count
    if len(gpus) % count:
        raise ConfigError(
            f"distribute.num_workers={count}: {len(gpus)} GPUs cannot be shared evenly among so many; take a number "
            "that divides them, or fewer GPUs with CUDA_VISIBLE_DEVICES"
        )
    share = len(gpus) // count
    cluster = {"worker": [_address(distribute.interface, port) for port in ports]}
    environments = []
    for worker in range(count):
        task = {"cluster": cluster, "task": {"type": "worker", "index": worker}}
        environment = {TF_CONFIG: json.dumps(task)}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[worker * share : (worker + 1) * share])
        environments.append(environment)
    return environments


def environments_of(distribute: Distribute) -> list[dict[str, str]]:
    """Returns the environments of `plan_workers` for this host, as it is now."""
    return plan_workers(distribute, gpus=visible_gpus(), ports=find_ports(distribute))


def visible_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> list[str]:
    """Returns the names by which CUDA knows the GPUs: those of CUDA_VISIBLE_DEVICES, else the numbers of all."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in {"", "-1"}]
    found = [name.removeprefix("nvidia") for name in os.listdir(devices) if re.fullmatch(r"nvidia\d+", name)]
    return sorted(found, key=int)


def find_ports(distribute: Distribute) -> list[int]:
    """Returns a free TCP port of the interface for each worker; raises ConfigError if this host has no such address."""
    if not isinstance(distribute, MultiWorkerMirrored):
        return []
    with ExitStack() as held:  # all at once, so that no port is found twice
        ports = []
        for _ in range(distribute.num_workers):
            try:
                family, *_, address = socket.getaddrinfo(distribute.interface, 0, type=socket.SOCK_STREAM)[0]
                probe = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
                probe.bind(address)
            except OSError as error:
                raise ConfigError(
                    f"distribute.interface={distribute.interface!r}: is no address of this host ({error}); take one of "
                    "its own, or 127.0.0.1"
                ) from None
            ports.append(probe.getsockname()[1])
        return ports


def refuse_stray_cluster(environment: Mapping[str, str] = os.environ) -> None:
    """Raises ConfigError if TF_CONFIG is set: TensorFlow would wait for the workers of another cluster."""
    if environment.get(TF_CONFIG):
        raise ConfigError(
            f"{TF_CONFIG}={environment[TF_CONFIG]!r} is set in the environment, and makes TensorFlow wait for other "
            "machines; unset it: the workers of distribute.kind=multi_worker_mirrored get one of their own"
        )


def place_in_cluster(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns this worker's number and how many workers there are; (0, 1) outside of a cluster."""
    if not environment.get(TF_CONFIG):
        return 0, 1
    config: dict[str, Any] = json.loads(environment[TF_CONFIG])
    return config["task"]["index"], len(config["cluster"]["worker"])


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
