"""Sessions: end a process with all processes that it started.

A process of the pool leads a session of its own. Its guard, a process in that session, waits for
the end of the worker: then it kills the session. So a worker that is killed leaves no processes.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
MAX_ROUNDS = 50
"""Rounds of SIGKILL. One kills a process group; processes that left the group need another."""
START_FIELD = 19
"""Place of the start time in `/proc/<pid>/stat`, after the name."""
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessEntry(NamedTuple):
    """A process that has not ended, from `/proc`."""

    pid: int
    started: str
    """Ticks since the boot. With the process id it identifies a process."""
    parent: int
    session: int


def kill_session(
    leader: int, /, *, others: Collection[ProcessEntry] = (), spare: int | None = None
) -> None:
    """Kill all processes of a session, and all descendants of its leader.

    Call it before the leader is reaped: until then its id cannot have another meaning.

    Args:
        leader: Process id of the leader, which is the id of the session.
        others: Processes that may have left the session, to kill too.
        spare: Process that is not killed.
    """
    names = {entry[:2] for entry in others}
    for _ in range(MAX_ROUNDS):
        if spare is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)
        entries = _entries()
        pids = {entry.pid for entry in _members(leader, entries)} - {spare}
        pids |= {entry.pid for entry in entries if entry[:2] in names}
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return


def session_members(leader: int, /) -> list[ProcessEntry]:
    """Return the processes of a session, and all descendants of its leader."""
    return _members(leader, _entries())


def start_guard(life: int, connection: int, /) -> None:
    """Start the guard of this session. Call it in the leader, before it has threads.

    It is not a child of the leader, so that a job that waits for its children does not wait for it.

    Args:
        life: Read end of a pipe whose write end the worker holds.
        connection: Descriptor that the guard closes.
    """
    leader = os.getpid()
    intermediate = os.fork()
    if intermediate:
        os.waitpid(intermediate, 0)
        os.close(life)
        return
    if os.fork():
        os._exit(0)
    try:
        os.close(connection)
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        while os.read(life, 1):
            pass
        kill_session(leader, spare=os.getpid())
    finally:
        os._exit(0)


def _members(leader: int, entries: list[ProcessEntry]) -> list[ProcessEntry]:
    children = defaultdict(list)
    for entry in entries:
        children[entry.parent].append(entry.pid)
    pids = {entry.pid for entry in entries if entry.session == leader}
    added = [leader]
    while added:
        pids.update(added)
        added = [pid for parent in added for pid in children[parent] if pid not in pids]
    return [entry for entry in entries if entry.pid in pids]


def _entries() -> list[ProcessEntry]:
    """Return all processes that have not ended. Empty without `/proc`."""
    entries = []
    for path in PROC.glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) > START_FIELD and fields[0] not in "ZX":
            pid, (parent, session) = int(path.parent.name), (int(fields[1]), int(fields[3]))
            entries.append(ProcessEntry(pid, fields[START_FIELD], parent, session))
    return entries
