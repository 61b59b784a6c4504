"""The memory limit, read from trees laid out as the kernel lays them out."""

from pathlib import Path

import pytest

from tasks.memory import memory_limit_bytes

GIB = 2**30


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit_bytes"),
    [
        ({"proc/self/cgroup": "0::/\n"}, 16 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 16 * GIB),
        (  # a limit of a slice above holds too
            {
                "proc/self/cgroup": "0::/a.slice/b.scope\n",
                "sys/fs/cgroup/a.slice/memory.max": f"{3 * GIB}\n",
                "sys/fs/cgroup/a.slice/b.scope/memory.max": f"{4 * GIB}\n",
            },
            3 * GIB,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/docker/x\n0::/\n",
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": f"{GIB}\n",
            },
            GIB,
        ),
        (  # in a container the cgroup's own path is not visible, its mount is
            {
                "proc/self/cgroup": "4:memory:/docker/x\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
            },
            GIB,
        ),
        (  # version 1 writes "no limit" as the largest number of pages
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            16 * GIB,
        ),
    ],
    ids=["none", "v2", "v2 max", "v2 above", "v1", "v1 container", "v1 none"],
)
def test_smallest_limit_holds(tmp_path: Path, files: dict[str, str], limit_bytes: int) -> None:
    root = lay_out(tmp_path, {"proc/meminfo": f"MemTotal:  {16 * 2**20} kB\nMemFree: 1 kB\n"} | files)
    assert memory_limit_bytes(root) == limit_bytes


def test_this_machine_has_a_limit() -> None:
    assert 2**20 < memory_limit_bytes() < 2**50
