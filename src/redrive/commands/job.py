"""Job: the handle to a submitted job."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..core.context import clock_around
from ..core.seconds import Seconds, seconds
from ..core.text import pluralise
from ..errors import Cancelled, Dead, LedgerError

if TYPE_CHECKING:
    from ..ledger.aio import AsyncLedger
    from ..ledger.ledger import Ledger
    from ..ledger.model import DisplayState, Submitted
    from ..ledger.model import Job as Row
    from ..worker.job_type import JobType
    from .engine import CommandEngine, EngineJob, EngineSubmitted
    from .spec import CommandSpec

R_co = TypeVar("R_co", covariant=True)

FIRST_POLL_SECONDS = 0.002
MAX_POLL_SECONDS = 0.25
PROGRAM_ACTOR = "program"
"""Actor in the audit log of a program that cancels its own job."""
POLL_GROWTH = 1.5
"""Factor between two waits for a job that has not ended. A poll reads one row by its id."""


class CommandGateway(Protocol):
    """The part of an app that commands and jobs use. Threads may share it."""

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use."""

    @property
    def aio(self) -> AsyncLedger:
        """The ledger for async code, opened at first use."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether the app is in a test without a worker, so that waiting for a job never ends."""

    def job(self, row: Row, /) -> Job[Any]:
        """Return the handle to a stored job."""

    def job_type(self, name: str, /) -> JobType:
        """Return how a worker runs a command."""

    def engine_of(self, spec: CommandSpec, /) -> CommandEngine | None:
        """Return the engine that runs a command, or None for the ledger."""


class ResultDecoder(Protocol):
    """Decodes the result of a job."""

    def decode_result(self, result: bytes | None, /) -> Any:
        """Return a stored result as a Python value."""


class Job(Generic[R_co]):
    """Handle to a submitted job.

    `state`, `due` and `attempts` read the ledger, or the engine of the command, each time.

    Threads, event loops and forked children may share one.
    """

    __slots__ = ("_decoder", "_due", "_engine", "_gateway", "created", "id", "key", "kind")

    def __init__(
        self,
        gateway: CommandGateway,
        decoder: ResultDecoder,
        submitted: Submitted | EngineSubmitted,
        due: datetime,
        engine: CommandEngine | None = None,
    ) -> None:
        self._gateway = gateway
        self._engine = engine
        self._decoder = decoder
        self._due = due
        self.id = str(submitted.id)
        """Id of the job."""
        self.kind = submitted.kind
        """Job type, the name of the command."""
        self.key = submitted.key
        """Job key."""
        self.created = submitted.created
        """False if the job key existed. This is the job that it has."""

    @property
    def state(self) -> DisplayState:
        """State of the job: `idle`, `queued`, `running`, `retry_wait`, `waiting`, `done`,
        `blocked`, `dlq`, `replaying`, `discarded` or `cancelled`.

        `idle` means that the transaction of the submission is not committed yet. `dlq` means that
        the job is a dead letter.
        """
        row = self._row()
        return "idle" if row is None else row.shown

    @property
    def due(self) -> datetime:
        """When the next attempt may start. For an ended job, when its last attempt was due."""
        row = self._row()
        return self._due if row is None else row.due_at

    @property
    def attempts(self) -> int:
        """Number of attempts so far."""
        row = self._row()
        return 0 if row is None else row.attempts

    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the result of the function.

        Args:
            timeout: Seconds to wait, or a `timedelta`. None: no limit.

        Returns:
            The result, as the annotated type.

        Raises:
            Dead: The job became a dead letter.
            Cancelled: The job was cancelled.
            TimeoutError: The job has not ended in time. It continues, and you can wait again,
                unless its transaction was not committed (`idle`).
            LedgerError: The job is done and was pruned. Its result is no longer stored.
        """
        clock = clock_around()
        for pause in self._pauses(timeout):
            clock.sleep(pause)
        return self._final_result()  # type: ignore[no-any-return]  # decoded as R_co

    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the result of the function, in async code.

        Args:
            timeout: Seconds to wait, or a `timedelta`. None: no limit.

        Returns:
            The result, as the annotated type.

        Raises:
            Dead: The job became a dead letter.
            Cancelled: The job was cancelled.
            TimeoutError: The job has not ended in time. It continues, and you can wait again,
                unless its transaction was not committed (`idle`).
        """
        clock = clock_around()
        pauses = self._pauses(timeout)
        while (pause := await asyncio.to_thread(next, pauses, None)) is not None:
            await clock.asleep(pause)
        return await asyncio.to_thread(self._final_result)

    def cancel(
        self, *, because: str = "cancelled by the program", actor: str = PROGRAM_ACTOR
    ) -> bool:
        """Cancel the job.

        A queued, scheduled or waiting job is cancelled at once. A running job is asked to stop:
        an async function is cancelled within about a second, and a sync function reads
        `current().cancelled`. If the function returns all the same, the job is `done`.

        The job key is free then: submitting it again creates a new job.

        Args:
            because: Why, for the audit log.
            actor: Who does this, for the audit log.

        Returns:
            True if the job was cancelled or asked to stop. False if it had ended, or was asked to
            stop before. Then nothing was changed.
        """
        if self._engine is not None:
            return self._engine.cancel(self.id, self.kind, self.key, actor=actor, because=because)
        row = self._row()
        if row is None:
            return False
        job_id = int(row.id)
        result = self._gateway.ledger.control.cancel([job_id], actor=actor, because=because)
        return bool(result.done)

    async def acancel(
        self, *, because: str = "cancelled by the program", actor: str = PROGRAM_ACTOR
    ) -> bool:
        """Cancel the job, in async code. See `cancel`.

        Args:
            because: Why, for the audit log.
            actor: Who does this, for the audit log.

        Returns:
            True if the job was cancelled or asked to stop.
        """
        return await asyncio.to_thread(self.cancel, because=because, actor=actor)

    def _pauses(self, timeout: Seconds | None) -> Iterator[float]:
        """Yield the seconds to wait before the next poll, until the job has ended."""
        clock = clock_around()
        end = math.inf if timeout is None else clock.monotonic() + seconds("timeout", timeout)
        pause = FIRST_POLL_SECONDS
        while (row := self._row()) is None or row.state in ("ready", "leased", "held"):
            remaining = end - clock.monotonic()
            if remaining <= 0 or self._gateway.is_sandboxed:
                raise TimeoutError(self._timeout_message(row, timeout))
            yield min(pause, remaining)
            pause = min(pause * POLL_GROWTH, MAX_POLL_SECONDS)

    def _timeout_message(self, row: EngineJob | Row | None, timeout: Seconds | None) -> str:
        job = f"{self.kind} job {self.id}"
        state = row.shown if row else "idle (the transaction that submits it is not committed)"
        if self._gateway.is_sandboxed:
            return f"{job} is {state}; a sandbox has no worker, so call drain() first"
        if row is None:
            fix = "commit its transaction, or it never runs; after a failover, submit it again"
            return f"{job} is not committed after {timeout} s; {fix}"
        error = f", last error: {_first_line(row.error)}" if row.error else ""
        return (
            f"{job} is {state} after {timeout} s{error}; "
            "the job continues, and you can wait for it again"
        )

    def _row(self) -> EngineJob | Row | None:
        """Return the current job of the key: a replay has replaced a dead letter.

        A handle to a cancelled job stays at that job, also when its key has a newer one.
        """
        if self._engine is not None:
            return self._engine.read(self.id, self.kind, self.key)
        ledger = self._gateway.ledger
        row = ledger.get(int(self.id))
        if row is not None and not self._is_mine(row):
            return ledger.find(self.kind, self.key)
        if row is not None and not row.current and row.state != "cancelled":
            return ledger.find(self.kind, self.key) or row
        return row

    def _is_mine(self, row: Row) -> bool:
        """Return whether a row is the submitted job.

        An asynchronous failover may lose a job, and the id is then another job's.
        """
        return row.kind == self.kind and row.key in (self.key, f"erased:{row.id}")

    def _final_result(self) -> Any:
        row = self._row()
        if row is None or row.state == "pruned":
            raise LedgerError(
                f"{self.kind} job {self.id} is done and was pruned; its result is no longer stored"
            )
        if row.state == "done":
            return self._decoder.decode_result(row.result)
        if row.state == "cancelled":
            raise Cancelled(f"{self.kind} job {row.id} was cancelled", job_id=str(row.id))
        letter = None
        if isinstance(row.id, int):  # otherwise it is not in the ledger yet
            letters = self._gateway.ledger.dead_letters(job_id=row.id, limit=1)
            letter = letters[0] if letters else None
        reason = "discarded" if row.state == "dropped" else (row.reason or "dead")
        dead_id = str(row.dead_id or "") if letter is None else str(letter.id)
        error = row.error if letter is None else letter.error
        if reason == "attempts":
            state = "is blocked" if row.shown == "blocked" else "failed"
            message = f"{state} after {pluralise(row.attempts, 'attempt')}"
        else:
            message = f"is {'a dead letter' if row.shown == 'dlq' else row.shown}: {reason}"
        if error:
            message += f": {_first_line(error)}"
        if dead_id:
            message += f" (redrive dead show {dead_id})"
        message = f"{self.kind} job {row.id} {message}"
        raise Dead(message, dead_id=dead_id, reason=reason, error=error)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} {self.key}>"


def _first_line(error: str) -> str:
    """Return the line with the error itself. Notes, cause and frames follow it."""
    return error.partition("\n")[0]
