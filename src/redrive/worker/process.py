"""Process: who a worker's process is, so that another on the same machine can tell that it is gone.

A process is named by its machine's boot, name and id, its process namespace, its number and the moment it began: nothing of
that is true of another one, in a container or after a restart. Where a system does not say all of this (Linux does), nobody is
ever said to be gone: then leases run out by time. Cloned machines may have all of it in common: a worker that was heard of
recently is not gone, whatever is found here (`workers.is_fresh`).
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

PROC = Path("/proc")
MACHINE = Path("/etc/machine-id")


def identity() -> str | None:
    """Of this process; None where it cannot be told."""
    pid = os.getpid()
    began = _began(pid)
    return None if began is None or (here := _here()) is None else f"{here}/{pid}/{began}"


def gone(identity: object, /) -> bool:
    """Whether that process is certainly not there any more. A stopped one is there."""
    if not isinstance(identity, str) or identity.count("/") != 3:
        return False
    where, pid, began = identity.rsplit("/", 2)
    if where != _here() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # another user's, and there
    found = _began(int(pid))
    return found is not None and found != began


def label() -> str:
    """This process in a few characters, for names that others may have to judge; see `left`."""
    here, began = _here(), _began(os.getpid())
    known = "" if here is None or began is None else _digest(here)
    return f"{os.getpid()}.{began or 0}.{known}"


def left(label: str, /) -> bool:
    """Whether the process of this label is certainly not there any more."""
    pid, _, rest = label.partition(".")
    began, _, known = rest.partition(".")
    here = _here()
    return here is not None and bool(known) and known == _digest(here) and gone(f"{here}/{pid}/{began}")


def _digest(here: str) -> str:
    return hashlib.blake2s(here.encode(), digest_size=4).hexdigest()


def _here() -> str | None:
    """The machine since its boot, and the namespace in which process numbers count."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = (PROC / "self/ns/pid").readlink()
    except OSError:
        return None
    return f"{boot}/{space}@{socket.gethostname()}+{_machine()}".replace("/", "|").replace("|", "/", 1)


def _machine() -> str:
    """The start of the machine's id; empty where it has none."""
    try:
        return MACHINE.read_text().strip()[:8]
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When it began, in ticks since the boot; "dead" for one that only waits to be collected."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] in "ZX" else fields[19]
