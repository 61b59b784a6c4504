"""Memory: how much of it the processes here may take before the kernel kills one of them."""

import os
from pathlib import Path


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """Returns the smallest limit that holds for this process: of its cgroups, v1 or v2, or the machine's memory.

    `root` is where /proc and /sys lie.
    """
    limits = [_total_bytes(root / "proc/meminfo")]
    cgroups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits(cgroups, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(cgroups / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _limits(mount: Path, path: str, name: str) -> list[int]:
    """Returns the limits of a cgroup and of all above it; inside a container only the mount itself may be visible."""
    here = mount / path.lstrip("/")
    texts = [_read(folder / name).strip() for folder in (here, *here.parents) if folder.is_relative_to(mount)]
    return [int(text) for text in texts if text.isdecimal()]  # `max` means none


def _total_bytes(meminfo: Path) -> int:
    for line in _read(meminfo).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024  # proc(5): in kB, by which it means KiB
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # not Linux, or this kind of cgroup is not mounted
        return ""
