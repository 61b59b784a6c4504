"""Each worker of a training knows its place, and no other cluster is mixed in."""

import json
import socket
from typing import Any

import pytest

from tasks.distribution import Mirrored, MultiWorkerMirrored
from tasks.errors import ConfigError
from tasks.workers.cluster import find_ports, place_in_cluster, plan_workers, refuse_stray_cluster


def cluster(environment: dict[str, str]) -> Any:
    return json.loads(environment["TF_CONFIG"])


def test_each_worker_gets_its_number_and_its_part_of_the_gpus() -> None:
    distribute = MultiWorkerMirrored(num_workers=2)
    environments = plan_workers(distribute, gpus=["0", "1", "2", "3"], ports=[5001, 5002])
    addresses = {"worker": ["127.0.0.1:5001", "127.0.0.1:5002"]}
    assert [cluster(environment) for environment in environments] == [
        {"cluster": addresses, "task": {"type": "worker", "index": 0}},
        {"cluster": addresses, "task": {"type": "worker", "index": 1}},
    ]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["0,1", "2,3"]
    assert [place_in_cluster(environment) for environment in environments] == [(0, 2), (1, 2)]


def test_one_worker_is_in_no_cluster() -> None:
    assert plan_workers(Mirrored(), gpus=["0", "1"], ports=[]) == [{}]
    assert place_in_cluster({}) == (0, 1)


def test_gpus_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^distribute.num_workers=2: 3 GPUs cannot be shared evenly among so many;"):
        plan_workers(MultiWorkerMirrored(), gpus=["0", "1", "2"], ports=[1, 2])


def test_ports_are_free_and_differ() -> None:
    ports = find_ports(MultiWorkerMirrored(num_workers=3))
    assert len(set(ports)) == 3
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_an_interface_that_this_host_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^distribute.interface='192.0.2.1': is no address of this host"):
        find_ports(MultiWorkerMirrored(interface="192.0.2.1"))


def test_a_stray_tf_config_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^TF_CONFIG='\{\}' is set in the environment.*; unset it"):
        refuse_stray_cluster({"TF_CONFIG": "{}"})
    refuse_stray_cluster({"TF_CONFIG": ""})
    refuse_stray_cluster({})
