"""Nobody but the processes of a cluster can reach their ports."""

import socket
from pathlib import Path
from types import ModuleType
from typing import Any

from tasks.distribution import Mirrored, MultiWorkerMirrored, ParameterServer
from tasks.workers.network import is_private


def test_only_the_processes_of_a_cluster_reach_each_other(workers: ModuleType, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    refused = []

    def knock(report: dict[str, Any]) -> None:
        if report["phase"] == "listens":
            with socket.socket() as stranger:
                refused.append(stranger.connect_ex(("127.0.0.1", port)) != 0)

    found = workers.call(
        "worker_functions:meet",
        {"port": port},
        log=tmp_path / "log",
        environments=[{"PLACE": "0"}, {"PLACE": "1"}],
        private_network=True,
        import_path=[str(Path(__file__).parent)],
        on_progress=knock,
    )
    assert refused == [True]
    assert found == {"interfaces": ["lo"]}
    assert (tmp_path / "log").read_text() == ""


def test_a_network_is_private_where_workers_speak_over_the_loopback_interface() -> None:
    assert is_private(MultiWorkerMirrored())
    assert is_private(ParameterServer(interface="::1"))
    assert not is_private(MultiWorkerMirrored(interface="192.0.2.1"))
    assert not is_private(Mirrored())
