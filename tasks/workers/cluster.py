"""Cluster: the workers of a run on this host, and what the environment tells each of them."""

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from tasks.distribution import Clustered, Distribute, MultiWorkerMirrored, ParameterServer
from tasks.errors import ConfigError
from tasks.workers.child import answer_sigterm, progress, stop_if, stop_requested

TF_CONFIG = "TF_CONFIG"
_CHIEF, _WORKER, _SERVER = "chief", "worker", "ps"  # TensorFlow's names
_HEARTBEAT_SECONDS = 1.0


def plan_workers(distribute: Distribute, *, gpus: list[str], ports: list[int]) -> list[dict[str, str]]:
    """Returns the environment of each process of a training, the chief's first; `ports` are one for each of them.

    `gpus` are the names by which CUDA_VISIBLE_DEVICES knows the GPUs of this host: each worker gets an equal part.
    Raises ConfigError if they cannot be shared evenly.
    """
    if not isinstance(distribute, Clustered):
        return [{}]
    tasks = _tasks(distribute)
    assert len(ports) == len(tasks)
    workers = [place for place, (role, _) in enumerate(tasks) if role == _WORKER]
    share, rest = divmod(len(gpus), len(workers))
    if rest:
        raise ConfigError(
            f"distribute.num_workers={len(workers)}: {len(gpus)} GPUs cannot be shared evenly among so many; take a "
            "number that divides them, or fewer GPUs with CUDA_VISIBLE_DEVICES"
        )
    cluster: dict[str, list[str]] = {}
    for (role, _), port in zip(tasks, ports, strict=True):
        cluster.setdefault(role, []).append(_address(distribute.interface, port))
    environments = []
    for role, index in tasks:
        own = gpus[index * share : (index + 1) * share] if role == _WORKER else []
        environments.append(
            {TF_CONFIG: json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}
            | ({"CUDA_VISIBLE_DEVICES": ",".join(own) or "-1"} if gpus else {})
        )
    return environments


def expendable_workers(distribute: Distribute) -> frozenset[int]:
    """Returns the places in `plan_workers` of the processes without which the training goes on."""
    if not isinstance(distribute, ParameterServer):
        return frozenset()
    return frozenset(place for place, (role, _) in enumerate(_tasks(distribute)) if role == _WORKER)


def _tasks(distribute: MultiWorkerMirrored | ParameterServer) -> list[tuple[str, int]]:
    """Returns TensorFlow's name and number of each process."""
    workers = [(_WORKER, index) for index in range(distribute.num_workers)]
    if isinstance(distribute, MultiWorkerMirrored):
        return workers
    return [(_CHIEF, 0), *workers, *((_SERVER, index) for index in range(distribute.num_servers))]


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
    """Returns a free TCP port of the interface for each process; raises ConfigError if this host has no such one."""
    if not isinstance(distribute, Clustered):
        return []
    with ExitStack() as held:  # all at once, so that no port is found twice
        ports = []
        for _ in _tasks(distribute):
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
            "machines; unset it: the workers of a run get one of their own"
        )


def place_in_cluster(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns this worker's number and how many workers do each step together; (0, 1) where it does so alone."""
    cluster, (_, index) = _read(environment)
    return (0, 1) if not cluster or _CHIEF in cluster else (index, len(cluster[_WORKER]))


def is_led(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether this process does what the chief of its cluster tells it, and nothing by itself."""
    cluster, (role, _) = _read(environment)
    return _CHIEF in cluster and role != _CHIEF


def leads(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether this process is the chief that tells the others of its cluster what to do."""
    return _read(environment)[1][0] == _CHIEF


def led_workers(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Returns TensorFlow's names of the workers that the chief of this cluster leads."""
    return tuple(f"/job:{_WORKER}/task:{index}" for index in range(len(_read(environment)[0][_WORKER])))


def serve() -> NoReturn:
    """Does what the chief of the cluster asks for, until this process is told to end; raises Stopped then."""
    import tensorflow as tf

    cluster, (role, index) = _read(os.environ)
    server = tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc")
    answer_sigterm()
    while True:
        progress("serve", target=server.target)
        stop_if(stop_requested())
        time.sleep(_HEARTBEAT_SECONDS)


def _read(environment: Mapping[str, str]) -> tuple[dict[str, list[str]], tuple[str, int]]:
    config = json.loads(environment.get(TF_CONFIG) or '{"cluster": {}, "task": {"type": "", "index": 0}}')
    return config["cluster"], (config["task"]["type"], config["task"]["index"])


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
