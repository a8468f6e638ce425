"""What runs inside a process of the pool: it imports the commands, and makes attempts."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from pathlib import Path
from random import random
from time import monotonic
from types import FrameType
from typing import NamedTuple

from ...core.text import safe_str
from ...errors import MemoryLimitExceeded
from ...journal.redaction.secrets import keep_address_secret
from ...ledger.ledger import Ledger
from ...ledger.model import Lease
from ...ledger.store.steps import ProgressReport
from ..attempt import AttemptContext, CancelRequests, perform
from ..job_type import DURABLE, JobType
from ..outcome import decide_failure
from ..progress import ProgressBoard
from .process import start_guard
from .protocol import Call, Decoder, Ready, Reply, Startup, encode, load_job_type, receive

MEGABYTE = 1_000_000


class Terminated(BaseException):
    """SIGTERM: the worker ends this process. `finally` blocks of the function run."""


def main(connection_fd: int, life_fd: int) -> None:
    """Serve a worker until it closes the connection."""
    for descriptor in (connection_fd, life_fd):
        os.set_inheritable(descriptor, False)
    start_guard(life_fd, connection_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    with suppress(Terminated), socket.socket(fileno=connection_fd) as connection:
        _serve(connection)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


class WorkerBoard(ProgressBoard):
    """Sends messages and the progress of jobs to the worker. Threads may share it."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection, self._pid = connection, os.getpid()

    def put(self, report: ProgressReport, /) -> None:
        """Send the progress of a job, which the worker writes with that of others."""
        with suppress(OSError):  # without a worker, the process ends soon
            self.send(report._replace(lease=report.lease._replace(payload=b"")))

    def send(self, message: NamedTuple, /) -> None:
        """Send a message. A process that the function forked sends none."""
        if os.getpid() == self._pid:
            with self._lock:
                self._connection.sendall(encode(message))


def _serve(connection: socket.socket) -> None:
    pid, decoder = os.getpid(), Decoder()
    startup: Startup | None = receive(connection, decoder)
    if startup is None:
        return
    board = WorkerBoard(connection)
    commands = Commands(startup, board)
    board.send(Ready(_data_bytes()))
    call: Call | None
    while (call := receive(connection, decoder)) is not None:
        reply = commands.attempt(call)
        if os.getpid() != pid:  # the function forked, and returned in both processes
            os._exit(0)
        if reply is None:
            return
        board.send(reply._replace(data_bytes=_data_bytes()))
        del call, reply


class Commands:
    """The commands that this process runs. Belongs to its main thread."""

    def __init__(self, startup: Startup, board: WorkerBoard) -> None:
        keep_address_secret(startup.address.target)
        self._board = board
        self._ledger = Ledger(startup.address, migrate=False, max_payload=startup.max_payload)
        self._job_types: dict[str, JobType] = {}
        self._problems: dict[str, Exception] = {}
        """Errors of imports. Each attempt of such a job raises its error."""
        for name, reference in startup.references.items():
            try:
                self._job_types[name] = load_job_type(reference)
            except Exception as problem:
                self._problems[name] = problem

    def attempt(self, call: Call, /) -> Reply | None:
        """Make an attempt. Return None if the worker ended it."""
        lease, started_at = call.lease, monotonic()
        job_type = self._job_types.get(lease.kind)
        if job_type is None:
            job_type = _failing(lease.kind, self._problems[lease.kind])

        def now() -> datetime:
            return call.now + timedelta(seconds=monotonic() - started_at)

        context = copy_context()
        attempts = AttemptContext(context, now, self._ledger, CancelRequests(), self._board)
        with _limited_memory(call.memory_limit):
            result = context.run(perform, attempts, job_type, lease, call.seconds, started_at)
        error = result.error
        if result.suspension is not None:
            return Reply(error_class="Suspended", suspension=result.suspension)
        if error is None:
            return Reply(result.result)
        if isinstance(error, Terminated):
            return None
        if call.memory_limit is not None and _ran_out_of_memory(error):
            error = _limit_error(lease, call.memory_limit, error)
        reply = Reply(error_class=type(error).__name__, error=safe_str(error))
        if result.is_late:
            return reply._replace(is_late=True)
        outcome = decide_failure(
            job_type, lease, error, now=now(), draw=random(), max_payload=self._ledger.max_payload
        )
        return reply._replace(outcome=outcome)


def _failing(name: str, problem: Exception) -> JobType:
    """Return a job type whose attempts raise this error."""

    def fail(_lease: Lease) -> None:
        raise problem

    return JobType(name, fail, "thread", DURABLE)


@contextmanager
def _limited_memory(limit: int | None) -> Iterator[None]:
    """Limit the memory of this process. Allocations above it raise MemoryError."""
    if limit is None:
        yield
        return
    import resource  # noqa: PLC0415  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _ran_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or isinstance(
        error.__cause__ or error.__context__, MemoryError
    )


def _limit_error(lease: Lease, limit: int, error: BaseException) -> MemoryLimitExceeded:
    exceeded = MemoryLimitExceeded(
        f"{lease.kind}: attempt {lease.attempt} exceeded its memory limit of "
        f"{limit / MEGABYTE:,.6g} MB; raise memory_limit=, or use less memory"
    )
    exceeded.__cause__ = error
    return exceeded.with_traceback(error.__traceback__)


def _data_bytes() -> int:
    """Return the private memory of this process, as RLIMIT_DATA counts it. 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
