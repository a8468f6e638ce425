"""ChildProcess: one process of the pool, as its worker sees it, and how it ends.

A process of the pool leads a session of its own. Its guard, a process in that session, waits for
the end of the worker: then it kills the session. So a worker that is killed leaves no processes.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from .protocol import CHUNK_BYTES, Decoder, encode

TERMINATE_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL."""
SEND_SECONDS = 30.0
"""Time in which a process must read a message."""
EXIT_POLL_SECONDS = 0.05
"""Time between two looks for the end of a process, where the system does not tell it."""
MAX_POLL_SECONDS = 3600.0
"""Longest wait of one poll. The system takes at most 24 days."""
CODE = (
    "import sys; sys.path[:] = {path!r}; "
    "from {package}.child import main; main({connection}, {life})"
)


class ChildExited(Exception):
    """The process ended by itself."""


class CallUnread(ChildExited):
    """The process ended before it had read the message. It has not started the job."""


class Interrupted(Exception):
    """Another thread asked to stop waiting."""


class OutOfTime(Exception):
    """The time to wait is over."""


class ChildProcess:
    """A Python process in a session of its own. Belongs to one thread."""

    def __init__(self) -> None:
        """Start the process."""
        self.socket, theirs = socket.socketpair()
        life, self._life = os.pipe()
        try:
            code = CODE.format(
                path=sys.path, package=__package__, connection=theirs.fileno(), life=life
            )
            self._popen = subprocess.Popen(  # noqa: S603  # no untrusted input
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), life),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._life)
            self.socket.close()
            raise
        finally:
            theirs.close()
            os.close(life)
        self.socket.settimeout(SEND_SECONDS)
        self._decoder = Decoder()
        self._exit = _open_pidfd(self._popen.pid)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self._status() is not None

    def send(self, message: NamedTuple, /) -> None:
        """Send a message.

        Raises:
            ChildExited: The process has ended.
        """
        try:
            self.socket.sendall(encode(message))
        except OSError as error:
            raise ChildExited(self._describe_exit()) from error

    def receive(self, until: float, wake: int, /) -> Any:
        """Wait for a message, and return it.

        Args:
            until: When to stop, on the monotonic clock.
            wake: Descriptor that becomes readable to stop earlier.

        Raises:
            ChildExited: The process has ended, or closed its connection.
            CallUnread: It has ended, and has not read the last message.
            Interrupted: The descriptor is readable.
            OutOfTime: The time is over.
        """
        while (message := self._decoder.next()) is None:
            ready = self._wait(until, wake)
            if self.socket.fileno() in ready:
                try:
                    received = self.socket.recv(CHUNK_BYTES)
                except ConnectionResetError as error:  # closed with unread bytes
                    raise CallUnread(self._describe_exit()) from error
                if not received:
                    raise ChildExited(self._describe_exit())
                self._decoder.feed(received)
            elif self.has_exited:
                raise ChildExited(self._describe_exit())
            elif wake in ready:
                raise Interrupted
            elif monotonic() >= until:
                raise OutOfTime
        return message

    def _wait(self, until: float, wake: int) -> set[int]:
        poll = select.poll()
        for descriptor in (self.socket.fileno(), wake, self._exit):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        longest = EXIT_POLL_SECONDS if self._exit is None else MAX_POLL_SECONDS
        seconds = max(0.0, min(until - monotonic(), longest))
        return {descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1000))}

    def end(self, *, terminate: bool = True) -> None:
        """End the process and all processes that it started, and release its resources.

        Args:
            terminate: Send SIGTERM first, so that `finally` blocks of the function run.
        """
        members: list[ProcessEntry] = []
        if terminate and not self.has_exited:
            # Children in sessions of their own are not found any more when the process has ended.
            members = session_members(self.pid)
            # Not by Popen, which reaps the process.
            os.kill(self.pid, signal.SIGTERM)
            self._wait_for_exit(TERMINATE_SECONDS)
        self._close(members)

    def retire(self) -> None:
        """End an idle process."""
        members = session_members(self.pid)
        self.socket.close()
        self._wait_for_exit(TERMINATE_SECONDS)
        self._close(members)

    def _wait_for_exit(self, seconds: float) -> None:
        until = monotonic() + seconds
        while monotonic() < until:
            if self.has_exited:
                return
            poll = select.poll()
            if self._exit is not None:
                poll.register(self._exit, select.POLLIN)
            poll.poll(EXIT_POLL_SECONDS * 1000)

    def _status(self) -> os.waitid_result | None:
        """Return how the process ended, without reaping it.

        Its id stays reserved until its session is killed.
        """
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def _close(self, members: Collection[ProcessEntry] = ()) -> None:
        kill_session(self.pid, others=members)
        self._popen.wait()
        self.socket.close()
        os.close(self._life)
        if self._exit is not None:
            os.close(self._exit)

    def _describe_exit(self) -> str:
        self._wait_for_exit(TERMINATE_SECONDS)
        status = self._status()
        if status is None:
            return "closed its connection to the worker"
        if status.si_code == os.CLD_EXITED:
            return f"exited with status {status.si_status}"
        try:
            name = signal.Signals(status.si_status).name
        except ValueError:
            name = f"signal {status.si_status}"
        if name == "SIGKILL":
            return "was killed by SIGKILL, by an operator or because the system ran out of memory"
        return f"was killed by {name}"


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable when the process has ended, where there is one."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # not permitted in some containers
        return None


# --- Sessions

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
