"""HostFacts: what a machine offers to a feed, read from the kernel's own files."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.memory import memory_limit_bytes

Medium = Literal["local", "memory", "network"]

_MEMORY = re.compile(r"tmpfs|ramfs")
# A file system in user space (FUSE) is a network's more often than not: of a bucket, sshfs, GlusterFS, JuiceFS.
_NETWORK = re.compile(r"nfs\d*|cifs|smb\w*|ceph|9p|afs|virtiofs|lustre|gpfs|beegfs\w*|glusterfs|fuse(\..*)?")


@dataclass(frozen=True)
class HostFacts:
    """What decides, besides manifest and config, how a feed does its work and never what it yields."""

    memory_bytes: int
    """What all processes here may take: the smallest limit of their cgroups, or the machine's memory."""
    num_cores: int
    """That this process may run on."""
    medium: Medium
    """What the shards lie on."""
    free_disk_bytes: int
    """Beside the shards."""


def host_facts(directory: Path, root: Path = Path("/")) -> HostFacts:
    """Returns the facts of this host for shards in `directory`; `root` is where /proc and /sys lie."""
    try:
        mounts = (root / "proc/mounts").read_text()
    except OSError:  # not Linux
        mounts = ""
    return HostFacts(
        memory_bytes=memory_limit_bytes(root),
        num_cores=len(os.sched_getaffinity(0)),
        medium=medium_of(directory.resolve(), mounts),
        free_disk_bytes=shutil.disk_usage(directory).free,
    )


def medium_of(path: Path, mounts: str) -> Medium:
    """Returns what an absolute path lies on, by the text of /proc/mounts; local if that does not know it."""
    kinds = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split(" ")
        # proc(5): blanks in a path are written as \040; of two mounts on one place the later one hides the other
        kinds[Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), place))] = kind
    kind = next((kinds[place] for place in (path, *path.parents) if place in kinds), "")
    return "network" if _NETWORK.fullmatch(kind) else "memory" if _MEMORY.fullmatch(kind) else "local"
