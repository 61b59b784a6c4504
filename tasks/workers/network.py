"""A network of a cluster's own: nobody but its processes can reach their ports.

TensorFlow's server listens on every interface, without a password, and no setting of TensorFlow changes that. So the
processes of a cluster that speak over the loopback interface get one that is theirs alone (network_namespaces(7)).
"""

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
import time
from pathlib import Path

from tasks.distribution import Clustered, Distribute

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET: linux/sched.h
_SET_FLAGS, _IS_UP = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP: linux/sockios.h, linux/if.h
_JOIN_TIMEOUT_SECONDS = 10.0


def is_private(distribute: Distribute) -> bool:
    """Returns whether the processes of a cluster speak to each other only."""
    if not isinstance(distribute, Clustered):
        return False
    address = socket.getaddrinfo(distribute.interface, None)[0][4][0]
    return ipaddress.ip_address(address).is_loopback


def leave_network() -> bool:
    """Moves this process, which has one thread, into a network of its own; False: the kernel does not allow it."""
    # Half done it could not go back, so another process tries first: some systems allow a namespace and nothing in it.
    pid = os.fork()
    if pid == 0:
        try:
            allowed = _leave()
        except OSError:
            allowed = False
        os._exit(0 if allowed else 1)
    return os.waitpid(pid, 0)[1] == 0 and _leave()


def join_network(pid: int) -> bool:
    """Moves this process, which has one thread, into the network that another has moved to; False: it did not."""
    libc, deadline = ctypes.CDLL(None, use_errno=True), time.monotonic() + _JOIN_TIMEOUT_SECONDS
    while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    for name, kind in (("user", _NEW_USER), ("net", _NEW_NETWORK)):
        if os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
            continue
        namespace = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if libc.setns(namespace, kind) != 0:
            return False
        os.close(namespace)
    _bring_up()  # the other may have moved there just now and not have come to it
    return True


def _leave() -> bool:
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(_NEW_NETWORK) != 0:
        if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            return False
        # Without a mapping this process would be nobody.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _bring_up()
    return True


def _bring_up() -> None:
    """Brings up the loopback interface, the only one of a new network; one that is up stays so."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _IS_UP))
