"""Progress and checkpoints of running jobs.

Progress is kept in memory and written for all jobs of a worker at once, about every second. A
checkpoint is stored before `checkpoint` returns.
"""

from __future__ import annotations

import asyncio
import math
from _thread import allocate_lock
from asyncio import _get_running_loop  # 30 ns; the public function raises without a loop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection

from ..core.codec import codec, from_bytes, misfit, to_bytes
from ..engine.current_job import Unawaited
from ..ledger.ledger import Ledger
from ..ledger.model import Lease
from ..ledger.store import steps as store
from ..ledger.store.steps import ProgressReport
from ..ledger.validation import check_payload, storable_text

T = TypeVar("T")
MAX_NOTE_CHARS = 200
_ANY = codec(Any)


class ProgressBoard:
    """The progress of the running jobs of a worker that is not written yet. Threads may share it.

    Later reports of a job replace earlier ones, so that it holds one for each running job.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._reports: dict[int, ProgressReport] = {}

    def put(self, report: ProgressReport, /) -> None:
        """Note the progress of a job."""
        with self._lock:
            self._reports[report.lease.job_id] = report

    def take(self) -> list[ProgressReport]:
        """Remove and return the reports, in the order of their jobs."""
        if not self._reports:
            return []
        with self._lock:
            reports, self._reports = self._reports, {}
        return [reports[job_id] for job_id in sorted(reports)]


class JobProgress:
    """The progress and the checkpoint of one job, for the attempt that is running.

    Threads may share it.
    """

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        now: Callable[[], datetime],
        unawaited: Unawaited,
        /,
        *,
        connection: Connection | None = None,
        board: ProgressBoard | None = None,
    ) -> None:
        """Prepare. Nothing is read before it is needed.

        Args:
            ledger: For reads and writes.
            lease: Of the attempt.
            now: Returns the time by the ledger's clock.
            unawaited: Takes the coroutines of async checkpoints.
            connection: Of the transaction in which the job runs, if it does.
            board: Takes reports of progress, which the worker writes. None: write them at once.
        """
        self._ledger, self._lease, self._now = ledger, lease, now
        self._unawaited, self._connection, self._board = unawaited, connection, board
        self._has_checkpoint = not is_first_attempt(lease)
        """It may have one."""
        self._last_progress: tuple[float, str | None] | None = None

    def progress(self, part: float, note: str | None, /) -> None:
        """Report which part of the work is done."""
        if isinstance(part, bool) or not isinstance(part, (int, float)):
            raise TypeError(f"progress must be a number from 0 to 1, not {part!r}")
        if not 0 <= part <= 1 or math.isnan(part):
            raise ValueError(f"progress must be from 0 to 1: {part!r:.40}; pass done / total")
        if note is not None:
            note = (storable_text(str(note)) or "")[:MAX_NOTE_CHARS]
        if (part, note) == self._last_progress:
            return
        self._last_progress = (part, note)
        report = ProgressReport(self._lease, float(part), note, self._now())
        if self._board is not None:
            self._board.put(report)
        elif self._connection is None:
            with self._ledger.connections.write.use() as session:
                store.write_progress(session, [report])

    def checkpoint(self, value: Any, /) -> None:
        """Store a value for the next attempt."""
        refuse_event_loop("checkpoint", "acheckpoint")
        self._write_checkpoint(self._encode(value))

    def acheckpoint(self, value: Any, /) -> Coroutine[Any, Any, None]:
        """Store a value for the next attempt."""

        async def write() -> None:
            await finish_in_thread(self._write_checkpoint, self._encode(value))

        return self._unawaited.track("a checkpoint", "acheckpoint", write)

    def last_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""
        if not self._has_checkpoint:
            return default
        refuse_event_loop("last_checkpoint", "alast_checkpoint")
        return self._read_checkpoint(default)

    async def alast_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""
        if not self._has_checkpoint:
            return default
        return await asyncio.to_thread(self._read_checkpoint, default)

    def _encode(self, value: Any) -> bytes:
        try:
            stored = to_bytes(_ANY.dump(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"checkpoint: the value cannot be stored: {misfit(error)}") from None
        check_payload("checkpoint: the value", stored, self._ledger.max_payload)
        return stored

    def _write_checkpoint(self, stored: bytes) -> None:
        if self._connection is not None:
            store.write_checkpoint_in(self._connection, self._lease, stored, self._now())
        else:
            with self._ledger.connections.write.use() as session:
                store.write_checkpoint(session, self._lease, stored, self._now())
        self._has_checkpoint = True

    def _read_checkpoint(self, default: Any) -> Any:
        with reading(self._ledger, self._connection) as connection:
            row = store.progress_of(connection, self._lease.job_id)
        return default if row is None or row.checkpoint is None else from_bytes(row.checkpoint)


def is_first_attempt(lease: Lease, /) -> bool:
    """Return whether no attempt ran before, so that nothing is stored that it could read."""
    return lease.fence == 1 and lease.dead_id is None


@contextmanager
def reading(ledger: Ledger, connection: Connection | None, /) -> Iterator[Connection]:
    """Read on the connection of the job's transaction, or on one of the ledger."""
    if connection is not None:
        yield connection
        return
    with ledger.connections.read.use() as session:
        yield session.core


def refuse_event_loop(act: str, instead: str, /) -> None:
    """Raise TypeError in async code, which a read of the ledger would block."""
    if _get_running_loop() is not None:
        raise TypeError(f"{act}: this job is async; use `await current().{instead}(...)`")


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await to the end: a cancelled attempt must not forget a step that has run."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def finish_in_thread(write: Callable[..., T], *args: Any) -> T:
    """Write in a thread, to the end."""
    return await finish(asyncio.to_thread(write, *args))
