"""Process: the identity of a worker's process, so that others on the machine notice its end.

An identity has the machine's boot id, host name and machine id, the process namespace, the process
id and its start time: no other process has the same, in a container or after a restart. On systems
other than Linux it is unknown, and no process counts as gone: leases expire by time. Cloned
machines may have all of it in common, so a worker with a fresh heartbeat is never gone
(`workers.is_fresh`).
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

PROC = Path("/proc")
MACHINE_ID = Path("/etc/machine-id")


def process_identity() -> str | None:
    """Return the identity of this process, or None if the system does not tell."""
    pid = os.getpid()
    start = _start_time(pid)
    return None if start is None or (host := _host()) is None else f"{host}/{pid}/{start}"


def is_gone(identity: object, /) -> bool:
    """Return whether the process with this identity has certainly ended. A stopped one has not."""
    if not isinstance(identity, str) or identity.count("/") != 3:
        return False
    host, pid, start = identity.rsplit("/", 2)
    if host != _host() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it exists and belongs to another user
    current_start = _start_time(int(pid))
    return current_start is not None and current_start != start


def process_label() -> str:
    """Return a short label of this process for `is_label_gone`, such as for consumer names."""
    host, start = _host(), _start_time(os.getpid())
    digest = "" if host is None or start is None else _digest(host)
    return f"{os.getpid()}.{start or 0}.{digest}"


def is_label_gone(label: str, /) -> bool:
    """Return whether the process with this label has certainly ended."""
    pid, _, rest = label.partition(".")
    start, _, digest = rest.partition(".")
    host = _host()
    if host is None or not digest or digest != _digest(host):
        return False
    return is_gone(f"{host}/{pid}/{start}")


def _digest(host: str) -> str:
    return hashlib.blake2s(host.encode(), digest_size=4).hexdigest()


def _host() -> str | None:
    """Return the machine since its boot, and the process namespace."""
    try:
        boot_id = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (PROC / "self/ns/pid").readlink()
    except OSError:
        return None
    host = f"{boot_id}/{namespace}@{socket.gethostname()}+{_machine_id()}"
    return host.replace("/", "|").replace("|", "/", 1)


def _machine_id() -> str:
    """Return the start of the machine id, or an empty text."""
    try:
        return MACHINE_ID.read_text().strip()[:8]
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; "dead" for a zombie."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] in "ZX" else fields[19]
